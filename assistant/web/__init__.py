"""The page: what a team looks at together at 3 am, served on one machine without a bundler or a CDN."""

"""Small stand-alone GPU programs of the lab: ordinary training code, wrong in one place or none."""

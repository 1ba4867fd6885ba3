"""The verdict of the NCCL flight recorder: who did not come to a collective, from the dumps of all ranks."""

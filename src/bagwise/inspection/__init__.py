"""What can be said of a fitted model from bags alone: uncertainty, importance, calibration."""

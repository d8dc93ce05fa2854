"""Profiles: the model, and how Batches become one."""

from remoteprof.profile.model import Function, Label, Line, Location, Mapping, Profile, Sample, ValueType

__all__ = ["Function", "Label", "Line", "Location", "Mapping", "Profile", "Sample", "ValueType"]

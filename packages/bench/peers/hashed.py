"""Inputs from a hash of the element's index, equal to the last bit with src/suites/inputs.ts."""
import torch

MASK = 0xFFFFFFFF


def hashes(count, salt):
    h = (torch.arange(count, dtype=torch.int64) * 0x9E3779B1 + salt * 0x85EBCA77) & MASK
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & MASK
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & MASK
    return h ^ (h >> 16)


def uniform(count, salt, low=-1.0, high=1.0):
    return (low + (high - low) * (hashes(count, salt).double() / 2**32)).float()


def integers(count, salt, below):
    return hashes(count, salt) % below

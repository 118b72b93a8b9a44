//go:build unix && !linux

package main

import "syscall"

func leash() *syscall.SysProcAttr { return nil }

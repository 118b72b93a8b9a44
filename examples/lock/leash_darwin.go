package main

import "syscall"

// leash does nothing: macOS cannot kill the program when lock is killed.
func leash() *syscall.SysProcAttr { return new(syscall.SysProcAttr) }

package main

import "syscall"

// leash makes the kernel kill the program when lock is killed. The processes that the program has
// started are not killed.
func leash() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

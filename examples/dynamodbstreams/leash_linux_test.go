package main

import "syscall"

// leash kills a process when the process that started it dies.
func leash() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

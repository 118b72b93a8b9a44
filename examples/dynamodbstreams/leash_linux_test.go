package main

import "syscall"

// leash makes a process die with the one that started it.
func leash() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

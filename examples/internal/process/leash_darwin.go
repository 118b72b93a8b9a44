package process

import "syscall"

func leash() *syscall.SysProcAttr { return nil }

// Package group runs programs in process groups of their own, so that a signal reaches a program and all that it
// started, and a Ctrl-C of the terminal none of them.
package group

import (
	"errors"
	"os/exec"
	"syscall"
	"time"
)

// Own gives a command that has not been started a group of its own, unless it has a session of its own, which is one.
// When the context of the command ends, the group gets the signal end. lingers is how long the command may take then,
// and how long processes that it leaves behind may keep its output open.
func Own(command *exec.Cmd, end syscall.Signal, lingers time.Duration) {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Setpgid = !command.SysProcAttr.Setsid
	command.WaitDelay = lingers
	if command.Cancel != nil { // it has a context
		command.Cancel = func() error { return Send(command, end) }
	}
}

// Send sends a signal to a started command and to all that it started. That none of them is left is no error.
func Send(command *exec.Cmd, s syscall.Signal) error {
	if err := syscall.Kill(-command.Process.Pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

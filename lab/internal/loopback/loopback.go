// Package loopback keeps programs running on loopback, without namespaces: control planes of tests that need no node.
// The command lines are those of package controlplane.
package loopback

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Program is a program that runs until it is stopped, or until this process ends.
type Program struct {
	Path string
	Args []string
	Dir  string // its working directory
	Log  string // the file of its output, truncated at the start
	// Again starts it again a second after it ended by itself, as a kubelet does it: an API server, for example, gives
	// up when etcd does not answer in time.
	Again bool
}

// Keep starts the program. stop ends it, and returns when it has ended.
func (p Program) Keep() (stop func(), err error) {
	log, err := os.Create(p.Log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	start := func() (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, p.Path, p.Args...)
		cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, p.Dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd, cmd.Start()
	}
	cmd, err := start()
	if err != nil {
		cancel()
		log.Close()
		return nil, err
	}
	ended := make(chan struct{})
	go func() { // until stop
		defer close(ended)
		for err == nil {
			why := cmd.Wait()
			if ctx.Err() != nil || !p.Again {
				return
			}
			fmt.Fprintf(log, "== ended by itself: %v. It is started again.\n", why)
			time.Sleep(time.Second)
			cmd, err = start()
		}
	}()
	return func() {
		cancel()
		<-ended
		log.Close()
	}, nil
}

// Port is a port of loopback that no process uses.
func Port() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

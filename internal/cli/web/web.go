package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/asking"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/cli/migrations"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/web"
)

// NewCommand makes the command theseus web.
func NewCommand(a *app.App) *cobra.Command {
	listen, act := "127.0.0.1:0", false
	command := migrations.Command(a, "web", "Show a migration live in a browser on this machine",
		"Serves one page about a migration on a loopback address, and prints its address. The page shows\n"+
			"whether anything is being lost now, every node, the current step and its gate, the journal and the\n"+
			"plan. It reads the cluster with your kubeconfig, as `theseus watch` does, and continues after an\n"+
			"interruption of the API server or the browser.\n\n"+
			"The address ends in a secret: everyone who has it can see the page. By default the page is\n"+
			"read-only. With --allow-actions, everyone with the address can also pause, resume, roll back and\n"+
			"approve in your name, after typing what the page asks for. The page asks the process that runs the\n"+
			"migration, or the controller; it runs no part of a plan itself. If no process runs the migration,\n"+
			"the page names the command to run.\n\n"+
			"An interrupt ends the page, not the migration.",
		func(ctx context.Context, client *kube.Client, name string) error {
			return serve(ctx, a, client, name, listen, act)
		})
	command.Flags().StringVar(&listen, "listen", listen, "loopback address and port; 0 is any free port")
	command.Flags().BoolVar(&act, "allow-actions", false, "let the page pause, resume, roll back and approve")
	return command
}

// open opens the port, with errors as the command line tells them.
func open(listen string) (net.Listener, error) {
	listener, err := web.Listen(listen)
	var address *net.AddrError
	switch {
	case errors.Is(err, web.ErrNotLoopback):
		return nil, exit.Fail(exit.Usage, "--listen 127.0.0.1:0; to see it from another machine: theseus web "+
			"--listen 127.0.0.1:8080 here, and ssh -L 8080:127.0.0.1:8080 HOST there", "--listen %s: %w", listen, err)
	case errors.As(err, &address):
		return nil, exit.Fail(exit.Usage, "--listen 127.0.0.1:0", "--listen: %w", err)
	case err != nil:
		return nil, exit.Fail(exit.Failed, "choose another port; 0 is any free one", "--listen %s: %w", listen, err)
	}
	return listener, nil
}

func serve(ctx context.Context, a *app.App, client *kube.Client, name, listen string, act bool) error {
	listener, err := open(listen)
	if err != nil {
		return err
	}
	defer listener.Close() //nolint:errcheck // the server has closed it
	var p *plan.Plan
	if err := a.Patiently(ctx, app.Begin, func(ctx context.Context) (err error) {
		p, _, err = journal.Load(ctx, client.Dynamic, name)
		return err
	}); err != nil {
		return err
	}
	dir, err := statedir.Of(name)
	if err != nil {
		return err
	}
	feed := web.NewFeed(p)
	var actions web.Actions
	if act {
		actions = &asking.Actions{Client: client, Name: name, Here: true}
	}
	page := web.NewServer(feed, listener.Addr().String(), actions, exit.HintOf)
	page.Live = run.Live{Client: client}
	return show(ctx, a, listener, page, func(ctx context.Context) {
		source := &web.Source{Client: client, Feed: feed, Name: name, Dir: dir, Waits: asking.Waits}
		source.Run(ctx)
	})
}

// show serves the page until an interrupt, while read reads the cluster.
func show(ctx context.Context, a *app.App, listener net.Listener, page *web.Server, read func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer a.Signals.During(&interrupt.Run{Stop: stop, Watched: true})()
	server := &http.Server{Handler: page, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	served, done := make(chan error, 1), make(chan struct{})
	go func() { served <- server.Serve(listener) }() // ends with server.Close
	go func() { defer close(done); read(ctx) }()     // ends with the context
	var err error
	if a.Output == "json" {
		err = json.NewEncoder(a.Out).Encode(map[string]string{"url": page.URL()})
	} else {
		_, err = fmt.Fprintf(a.Out, "%s\n", page.URL())
		fmt.Fprintln(a.Err, "open this address in a browser on this machine; Ctrl-C ends the page, not the migration")
	}
	if err == nil {
		select {
		case err = <-served:
		case <-stop:
		case <-ctx.Done():
		}
	}
	cancel()
	server.Close() //nolint:errcheck // it ends either way
	<-done
	if err == nil {
		err = exit.Fail(exit.Interrupted, "`theseus web` shows it again",
			"stopped showing the page; the migration itself was not interrupted")
	}
	return err
}

// Package serve is the workload's servers: HTTP, TCP streams and UDP, as well-behaved ones are.
//
// Told to end, a server first says so (readiness fails, answers carry Connection: close, streams are
// asked to go away) and goes on serving for a grace in which the rest of the cluster learns that it
// leaves. Only then does it end. So a client that loses a request lost it to the network.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Config says what is served where; an empty address means not at all.
type Config struct {
	Name   string        // what an HTTP server calls itself
	HTTP   string        // address of the HTTP server
	Stream string        // address of the stream server
	UDP    string        // address of the UDP echo server
	Health string        // address that answers /ready
	Grace  time.Duration // how long serving goes on after being told to end
	Log    io.Writer
}

// service is one listener's work.
type service interface {
	// run serves until shut down; it returns nil then.
	run() error
	// leave says that the end is near. Serving goes on.
	leave()
	// shut ends serving once what is under way is done, or when ctx ends.
	shut(ctx context.Context)
}

// Run serves until ctx ends, and then for the grace.
func Run(ctx context.Context, config Config) error {
	var leaving atomic.Bool
	services, err := listen(config, &leaving)
	if err != nil {
		return err
	}
	failed := make(chan error, len(services))
	var group sync.WaitGroup
	for _, s := range services {
		group.Go(func() { failed <- s.run() })
	}
	fmt.Fprintln(config.Log, "serving")

	select {
	case err = <-failed:
	case <-ctx.Done():
		fmt.Fprintf(config.Log, "told to end: serving on for %v\n", config.Grace)
		leaving.Store(true)
		for _, s := range services {
			s.leave()
		}
		<-time.After(config.Grace)
	}
	shutting, cancel := context.WithTimeout(context.Background(), config.Grace)
	defer cancel()
	for _, s := range services {
		s.shut(shutting)
	}
	group.Wait()
	fmt.Fprintln(config.Log, "ended")
	return err
}

// listen opens every listener before anything serves, so that ready means all of it.
func listen(config Config, leaving *atomic.Bool) ([]service, error) {
	var services []service
	var errs []error
	tcp := func(address string, handler func(net.Listener) service) {
		if address == "" {
			return
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			errs = append(errs, err)
			return
		}
		services = append(services, handler(l))
	}
	tcp(config.HTTP, func(l net.Listener) service { return newWeb(l, answers(config.Name, leaving)) })
	tcp(config.Health, func(l net.Listener) service { return newWeb(l, health(leaving)) })
	tcp(config.Stream, func(l net.Listener) service { return newStreams(l) })
	if config.UDP != "" {
		conn, err := net.ListenPacket("udp4", config.UDP)
		if err != nil {
			errs = append(errs, err)
		} else {
			services = append(services, &echo{conn, config.Log})
		}
	}
	return services, errors.Join(errs...)
}

// web is an HTTP server on a listener.
type web struct {
	server   *http.Server
	listener net.Listener
}

func newWeb(l net.Listener, handler http.Handler) *web {
	return &web{server: &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}, listener: l}
}

func (w *web) run() error {
	if err := w.server.Serve(w.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}

func (w *web) leave() {}

func (w *web) shut(ctx context.Context) {
	if err := w.server.Shutdown(ctx); err != nil {
		w.server.Close()
	}
}

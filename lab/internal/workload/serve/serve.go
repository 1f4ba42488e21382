// Package serve has the workload's servers: HTTP, TCP streams and UDP, all well-behaved.
//
// When told to stop, a server first announces it (readiness fails, answers have Connection: close, streams are
// asked to go away) and continues to serve for a grace period, in which the rest of the cluster learns that it
// leaves. Only then does it stop. So a client's lost request was lost by the network.
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
	Grace  time.Duration // how long serving continues after being told to stop
	Log    io.Writer
}

// service is the server of one listener.
type service interface {
	// run serves until shut down; it returns nil then.
	run() error
	// leave announces the end. Serving continues.
	leave()
	// shutdown stops serving once requests in flight are done, or when ctx ends.
	shutdown(ctx context.Context)
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
		fmt.Fprintf(config.Log, "told to stop: serving for another %v\n", config.Grace)
		leaving.Store(true)
		for _, s := range services {
			s.leave()
		}
		<-time.After(config.Grace)
	}
	shutting, cancel := context.WithTimeout(context.Background(), config.Grace)
	defer cancel()
	for _, s := range services {
		s.shutdown(shutting)
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

func (w *web) shutdown(ctx context.Context) {
	if err := w.server.Shutdown(ctx); err != nil {
		w.server.Close()
	}
}

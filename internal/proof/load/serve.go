package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/proof/probe"
)

// Ports are where a responder listens.
type Ports struct{ Echo, Accept, Sink, HTTP int }

// Kernel reads what the kernel of a responder's node counts, and what the node can carry.
type Kernel interface {
	Counters() (map[string]int64, error)
	Limits() (bench.Limits, error)
}

// Paths of a responder's HTTP server.
const (
	pathPage     = "/"
	pathCounters = "/counters"
	pathLimits   = "/limits"
	pathMeasure  = "/measure"
)

// pageSize is the size of an HTTP answer in bytes, and mostStreams how many streams are taken at once.
const (
	pageSize    = 1024
	mostStreams = 64
)

// Serve answers on an address (empty for all) until ctx ends, which is no error. The kernel is that of the node, if
// this is a responder on the host network; else it is nil.
func Serve(ctx context.Context, address string, ports Ports, kernel Kernel) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	at := func(port int) string { return net.JoinHostPort(address, strconv.Itoa(port)) }
	streams, err := net.Listen("tcp", at(ports.Sink))
	if err != nil {
		return fmt.Errorf("take streams: %w", err)
	}
	defer streams.Close()
	pages, err := net.Listen("tcp", at(ports.HTTP))
	if err != nil {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	// of the same number as the port of the streams
	blasts, err := net.ListenPacket("udp", at(ports.Sink))
	if err != nil {
		return fmt.Errorf("take datagrams: %w", err)
	}
	defer blasts.Close()
	blasts.(*net.UDPConn).SetReadBuffer(receiveBuffer) //nolint:errcheck // the system's limit is enough for most
	mux := http.NewServeMux()
	page := bytes.Repeat([]byte{'.'}, pageSize)
	mux.HandleFunc("GET "+pathPage, func(w http.ResponseWriter, _ *http.Request) {
		w.Write(page) //nolint:errcheck // the client has gone
	})
	if kernel != nil {
		mux.HandleFunc("GET "+pathCounters, func(w http.ResponseWriter, _ *http.Request) {
			all, err := kernel.Counters()
			answer(w, all, err)
		})
		mux.HandleFunc("GET "+pathLimits, func(w http.ResponseWriter, _ *http.Request) {
			limits, err := kernel.Limits()
			answer(w, limits, err)
		})
	}
	ended := make(chan error, 4)
	var running sync.WaitGroup
	running.Go(func() {
		ended <- probe.Serve(ctx, address, probe.Ports{UDP: ports.Echo, TCP: ports.Accept})
	})
	running.Go(func() { ended <- takeStreams(streams) })
	running.Go(func() { ended <- receive(blasts) })
	running.Go(func() { ended <- serveHTTP(ctx, pages, mux) })
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	cancel()
	streams.Close()
	blasts.Close()
	running.Wait()
	return err
}

func takeStreams(listener net.Listener) error {
	places := make(chan struct{}, mostStreams)
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		select {
		case places <- struct{}{}:
			go func() { // ends when its stream does, or idles
				defer func() { <-places }()
				sink(conn)
			}()
		default:
			conn.Close()
		}
	}
}

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: timeout, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: 8 << 10, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// answer writes a value, or an error, as an HTTP answer.
func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(value) //nolint:errcheck // the client has gone
}

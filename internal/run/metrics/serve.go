package metrics

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

const (
	// mostConnections bounds the connections; further ones wait until one of them ends.
	mostConnections = 64
	// mostRendered bounds the scrapes that are rendered at once, and mostAnswered those whose answers are in memory,
	// which a slow reader can keep there for writeTimeout. Further ones get 503.
	mostRendered = 2
	mostAnswered = 16
	writeTimeout = 15 * time.Second
	idleTimeout  = 20 * time.Second
)

// ValidAddress demands HOST:PORT; an empty host means every address of the machine.
func ValidAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return engine.WithHint(fmt.Errorf("the address %q for metrics is not HOST:PORT", address),
			"for example 127.0.0.1:9464")
	}
	return nil
}

// Serve serves /metrics, without encryption and to everyone who reaches the address, until stopped. It returns the
// address that it listens on.
func (m *Metrics) Serve(address string) (at string, stop func(), err error) {
	if err := ValidAddress(address); err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", nil, engine.WithHint(fmt.Errorf("metrics cannot be served: %w", err),
			"give an address of this machine, and a port that is free")
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 16 << 10}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(netutil.LimitListener(listener, mostConnections)) // ends with Close
	}()
	return listener.Addr().String(), func() { server.Close(); <-done }, nil
}

// Handler answers scrapes. An answer is complete before it is sent, so a slow reader does not block other scrapes.
func (m *Metrics) Handler() http.Handler {
	render := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: mostRendered})
	answers := make(chan struct{}, mostAnswered)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case answers <- struct{}{}:
			defer func() { <-answers }()
		default:
			http.Error(w, "too many scrapes are in progress", http.StatusServiceUnavailable)
			return
		}
		answer := &answer{header: http.Header{}, status: http.StatusOK}
		render.ServeHTTP(answer, r)
		maps.Copy(w.Header(), answer.header)
		w.WriteHeader(answer.status)
		_, _ = answer.text.WriteTo(w) // the reader has gone
	})
}

// answer is a http.ResponseWriter that keeps an answer.
type answer struct {
	header http.Header
	status int
	text   bytes.Buffer
}

func (a *answer) Header() http.Header            { return a.header }
func (a *answer) WriteHeader(status int)         { a.status = status }
func (a *answer) Write(text []byte) (int, error) { return a.text.Write(text) }

package metrics

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

// ValidAddress demands HOST:PORT; an empty host means every address of the machine.
func ValidAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return engine.WithHint(fmt.Errorf("the address %q for metrics is not HOST:PORT", address), "for example 127.0.0.1:9464")
	}
	return nil
}

// Serve serves /metrics, without encryption and to everyone who reaches the address, until stopped. It returns the address that it listens on.
func (m *Metrics) Serve(address string) (at string, stop func(), err error) {
	if err := ValidAddress(address); err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", nil, engine.WithHint(fmt.Errorf("metrics cannot be served: %w", err), "give an address of this machine, and a port that is free")
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with Close
	}()
	return listener.Addr().String(), func() { server.Close(); <-done }, nil
}

// Package standin is the program that runs in the containers of a rehearsal's copy, in place of users' own: it opens
// the ports that they open, and answers.
package standin

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ports parses a list of port numbers, such as 80,443; empty is none.
func Ports(list string) ([]int, error) {
	var ports []int
	for text := range strings.SplitSeq(list, ",") {
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q is not a port", text)
		}
		ports = append(ports, int(n))
	}
	return ports, nil
}

// Sockets are the ports of a stand-in. Ports of 0 are chosen by the kernel.
type Sockets struct {
	TCP, UDP []int
	// TLS are TCP ports that speak HTTPS, and that answer admission reviews. They need a Certificate.
	TLS         []int
	Certificate *tls.Certificate
}

// Open are the open sockets of a stand-in.
type Open struct {
	tcp, tls []net.Listener
	udp      []net.PacketConn
	config   *tls.Config
}

// Listen opens ports on all addresses.
func Listen(ports Sockets) (*Open, error) {
	o := &Open{}
	if len(ports.TLS) > 0 {
		if ports.Certificate == nil {
			return nil, errors.New("TLS ports need a certificate")
		}
		o.config = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*ports.Certificate}}
	}
	streams := func(ports []int, opened *[]net.Listener) error {
		for _, port := range ports {
			listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				o.Close()
				return err
			}
			*opened = append(*opened, listener)
		}
		return nil
	}
	if err := streams(ports.TCP, &o.tcp); err != nil {
		return nil, err
	}
	if err := streams(ports.TLS, &o.tls); err != nil {
		return nil, err
	}
	for _, port := range ports.UDP {
		packets, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		if err != nil {
			o.Close()
			return nil, err
		}
		o.udp = append(o.udp, packets)
	}
	return o, nil
}

// Close closes all sockets.
func (o *Open) Close() {
	for _, listener := range slices.Concat(o.tcp, o.tls) {
		listener.Close() //nolint:errcheck // the process ends
	}
	for _, packets := range o.udp {
		packets.Close() //nolint:errcheck // the process ends
	}
}

// drain is how long requests that are under way may take after the stand-in was told to stop.
const drain = 5 * time.Second

// Serve answers until the context ends: every HTTP request with 200, every datagram with itself. It holds open
// connections. On its TLS ports, it allows what an admission review asks about.
func (o *Open) Serve(ctx context.Context) error {
	server := &http.Server{ReadHeaderTimeout: time.Hour, TLSConfig: o.config,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.TLS == nil || !allow(w, r) {
				fmt.Fprintln(w, "a stand-in of theseus rehearse")
				if r.Header.Get(fillHeader) != "" {
					fmt.Fprintln(w, fill()) // the client went away
				}
			}
		})}
	failed := make(chan error, len(o.tcp)+len(o.tls)+len(o.udp))
	for _, listener := range o.tls {
		go func() { failed <- server.ServeTLS(listener, "", "") }() // ends when the server is shut down
	}
	for _, listener := range o.tcp {
		go func() { failed <- server.Serve(listener) }() // ends when the server is shut down
	}
	for _, packets := range o.udp {
		go func() { failed <- echo(packets) }() // ends when the socket is closed
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if late := server.Shutdown(stopping); errors.Is(late, context.DeadlineExceeded) {
		server.Close() //nolint:errcheck // the process ends
	}
	o.Close()
	return err
}

// mostReview bounds the size of an admission review: an object of etcd has at most 1.5 MiB, and a review may have it
// twice.
const mostReview = 8 << 20

// allow answers a request that is an admission review: it is allowed, and nothing is changed. False means that it is
// none.
func allow(w http.ResponseWriter, r *http.Request) bool {
	var review struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Request    *struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if r.Method != http.MethodPost || json.NewDecoder(http.MaxBytesReader(w, r.Body,
		mostReview)).Decode(&review) != nil || review.Kind != "AdmissionReview" || review.Request == nil {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	// the client went away
	_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind,
		"response": map[string]any{"uid": review.Request.UID, "allowed": true}})
	return true
}

// echo sends every datagram back.
func echo(packets net.PacketConn) error {
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := packets.ReadFrom(buffer)
		if err != nil {
			return err
		}
		if _, err := packets.WriteTo(buffer[:n], from); errors.Is(err, net.ErrClosed) {
			return err
		}
	}
}

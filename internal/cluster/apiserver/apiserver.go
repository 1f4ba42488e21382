// Package apiserver reaches the API servers of a cluster at their own addresses, without the Service kubernetes, whose
// rules a change of the network may replace.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// dialTimeout bounds the connection to one address of the API servers.
const dialTimeout = 3 * time.Second

// Servers connects to the API servers by their own addresses, one after another until one accepts. It is safe for
// concurrent use.
type Servers struct {
	dialer net.Dialer

	lock      sync.Mutex
	addresses []string  // HOST:PORT; the first one is tried first
	last      string    // the address of the configuration, tried last; "" if addresses were given by a person
	byLast    time.Time // until when last is tried first, since the others do not lead to an API server
}

// byLastFor is how long the address of the configuration is tried first.
const byLastFor = time.Minute

// DNS is the name in the certificate of every API server of a cluster, whatever its address.
const DNS = "kubernetes.default.svc"

// Direct returns a configuration that connects by Servers, and these. addresses are tried in their order. If fixed is
// true, they are complete; else the address of the configuration is tried after them.
func Direct(config *rest.Config, addresses []string, fixed bool) (*rest.Config, *Servers, error) {
	config = rest.CopyConfig(config)
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("the API server %s: %w", config.Host, err)
	}
	s := &Servers{addresses: slices.Clone(addresses),
		dialer: net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}}
	if !fixed {
		port := server.Port()
		if port == "" {
			port = "443"
		}
		s.last = net.JoinHostPort(server.Hostname(), port)
	}
	if config.ServerName == "" {
		config.ServerName = DNS
	}
	config.Dial = s.Dial
	// A proxy would be dialed in place of an API server.
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return checked{s, next} })
	return config, s, nil
}

// checked turns to the address of the configuration when another one leads to something that is no API server of the
// cluster, such as a pod that got the address of a former one.
type checked struct {
	servers *Servers
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c checked) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err != nil && outage.Untrusted(err) {
		c.servers.prefer(c.servers.last)
	}
	return response, err
}

// Dial connects to the first address that accepts, regardless of the one that is asked for, and tries that one first
// from then on.
func (s *Servers) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var failures []error
	for _, address := range s.known() {
		conn, err := s.dialer.DialContext(ctx, network, address)
		if err == nil {
			s.prefer(address)
			return conn, nil
		}
		failures = append(failures, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(failures) == 0 {
		return nil, errors.New("Theseus knows no address of an API server")
	}
	if len(failures) == 1 {
		return nil, failures[0]
	}
	return nil, &allFailed{failures}
}

// allFailed says that no address accepted. It is a network error, as each of them is.
type allFailed struct{ failures []error }

func (e *allFailed) Error() string {
	return "no API server accepts: " + errors.Join(e.failures...).Error()
}
func (e *allFailed) Unwrap() []error { return e.failures }

// known are all addresses, in the order in which to try them.
func (s *Servers) known() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	all := slices.DeleteFunc(slices.Clone(s.addresses), func(address string) bool { return address == s.last })
	switch {
	case s.last == "":
	case time.Now().Before(s.byLast):
		all = slices.Insert(all, 0, s.last)
	default:
		all = append(all, s.last)
	}
	return all
}

func (s *Servers) prefer(address string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if address == s.last && address != "" {
		s.byLast = time.Now().Add(byLastFor)
		return
	}
	s.byLast = time.Time{}
	if i := slices.Index(s.addresses, address); i > 0 {
		s.addresses = slices.Insert(slices.Delete(s.addresses, i, i+1), 0, address)
	}
}

// Use makes Dial try these addresses from now on. None changes nothing.
func (s *Servers) Use(found []string) {
	if len(found) == 0 {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	first := ""
	if len(s.addresses) > 0 {
		first = s.addresses[0]
	}
	s.addresses = slices.Clone(found)
	if i := slices.Index(s.addresses, first); i > 0 { // a working connection stays where it is
		s.addresses = slices.Insert(slices.Delete(s.addresses, i, i+1), 0, first)
	}
}

// Find returns the addresses of the API servers from the EndpointSlices of the Service kubernetes, as HOST:PORT,
// sorted.
func Find(of []discoveryv1.EndpointSlice) []string {
	var all []string
	for _, slice := range of {
		if len(slice.Ports) == 0 || slice.Ports[0].Port == nil {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			for _, address := range endpoint.Addresses {
				all = append(all, net.JoinHostPort(address, strconv.Itoa(int(*slice.Ports[0].Port))))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

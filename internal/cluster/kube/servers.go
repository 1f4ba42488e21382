package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// dialTimeout bounds the connection to one address of the API servers.
const dialTimeout = 3 * time.Second

// Servers connects to the API servers by their own addresses, one after another until one accepts. So a client does not
// need the Service kubernetes, whose rules a change of the network may replace. It is safe for concurrent use.
type Servers struct {
	dialer net.Dialer

	lock      sync.Mutex
	addresses []string // HOST:PORT; the first one is tried first
	last      string   // the address of the configuration, tried last; "" if addresses were given by a person
}

// apiServerDNS is the name in the certificate of every API server of a cluster, whatever its address.
const apiServerDNS = "kubernetes.default.svc"

// Direct returns a configuration that connects by Servers, and these. addresses are tried in their order. If fixed is
// true, they are complete; else the address of the configuration is tried after them.
func Direct(config *rest.Config, addresses []string, fixed bool) (*rest.Config, *Servers, error) {
	config = rest.CopyConfig(config)
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("the API server %s: %w", config.Host, err)
	}
	s := &Servers{addresses: slices.Clone(addresses),
		dialer: net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}}
	if !fixed {
		port := url.Port()
		if port == "" {
			port = "443"
		}
		s.last = net.JoinHostPort(url.Hostname(), port)
	}
	if config.ServerName == "" {
		config.ServerName = apiServerDNS
	}
	config.Dial = s.Dial
	return config, s, nil
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
		return nil, errors.New("no address of an API server is known")
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
	all := slices.Clone(s.addresses)
	if s.last != "" && !slices.Contains(all, s.last) {
		all = append(all, s.last)
	}
	return all
}

func (s *Servers) prefer(address string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if i := slices.Index(s.addresses, address); i > 0 {
		s.addresses = slices.Insert(slices.Delete(s.addresses, i, i+1), 0, address)
	}
}

// Learn reads the addresses of the API servers from the cluster, and returns them sorted. From then on, Dial tries
// these. An empty answer changes nothing.
func (s *Servers) Learn(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	found, err := apiServers(ctx, client)
	if err != nil || len(found) == 0 {
		return nil, err
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
	return found, nil
}

// apiServers returns the addresses of the API servers from the EndpointSlices of the Service kubernetes, sorted.
func apiServers(ctx context.Context, client kubernetes.Interface) ([]string, error) {
	list, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	if err != nil {
		return nil, err
	}
	var all []string
	for _, slice := range list.Items {
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
	return slices.Compact(all), nil
}

package dns

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Prober tests from this machine whether addresses serve a name.
type Prober struct {
	// Roots verify certificates; nil means the system's. CA is the additional roots among them, as PEM.
	Roots *x509.CertPool
	CA    string
	// From are additional places from which Prove tests.
	From []Place
	// Timeout bounds one probe; 0 for 5 s.
	Timeout time.Duration
	// Resolvers resolve names of load balancers, and, for a gate, the names themselves.
	Resolvers []string
	// Ports replaces a port, for tests and for load balancers behind another one.
	Ports map[int]int
}

const (
	// probers is how many probes are under way at a time.
	probers = 32
	// tries is how often a probe may fail in a row before its address counts as not serving.
	tries = 3
)

// Prove tests every address of every probe, from here and from each place, and reports failures.
func (p *Prober) Prove(ctx context.Context, probes []zone.Probe) error {
	if err := unproven(ctx, p.failures(ctx, probes), probes, ""); err != nil || len(probes) == 0 {
		return err
	}
	for _, place := range p.From {
		failed, err := place.ask(ctx, Question{Probes: probes, Ports: p.Ports, CA: p.CA})
		if err == nil {
			err = unproven(ctx, failed, probes, "from `"+place.String()+"` ")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func unproven(ctx context.Context, failed []string, probes []zone.Probe, where string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(failed) == 0 {
		return nil
	}
	text := strings.Join(failed[:min(3, len(failed))], "; ")
	return engine.WithHint(fmt.Errorf("%s%d of %d probes fail at the name's new address: %s",
		where, len(failed), len(probes), text),
		"check the service there; its names have not moved")
}

// failures asks from here.
func (p *Prober) failures(ctx context.Context, probes []zone.Probe) []string {
	var lock sync.Mutex
	failed := []string{}
	p.each(probes, func(probe zone.Probe) {
		if err := p.prove(ctx, probe); err != nil {
			lock.Lock()
			failed = append(failed, err.Error())
			lock.Unlock()
		}
	})
	return failed
}

func (p *Prober) each(probes []zone.Probe, f func(zone.Probe)) {
	work := make(chan zone.Probe)
	var workers sync.WaitGroup
	for range min(probers, len(probes)) {
		workers.Go(func() {
			for probe := range work {
				f(probe)
			}
		})
	}
	for _, probe := range probes {
		work <- probe
	}
	close(work)
	workers.Wait()
}

// prove asks all addresses of one probe.
func (p *Prober) prove(ctx context.Context, probe zone.Probe) error {
	addresses, err := p.Addresses(ctx, probe.At)
	if err != nil {
		return fmt.Errorf("%s: %w", probe.Host, err)
	}
	if len(addresses) == 0 {
		return fmt.Errorf("%s: there is no address to send requests to", probe.Host)
	}
	for _, address := range addresses {
		status, err := p.retry(ctx, probe, address)
		if err != nil {
			return fmt.Errorf("%s at %s: %w", probe.Host, address, err)
		}
		if probe.Kind != zone.ProbeHTTP {
			continue
		}
		if was, ok := p.was(ctx, probe); ok && was != status {
			return fmt.Errorf("%s at %s: HTTP status %d, and %d where it is now", probe.Host, address, status, was)
		}
	}
	return nil
}

// was is what the address that the name leaves answers; not ok when it cannot be asked.
func (p *Prober) was(ctx context.Context, probe zone.Probe) (int, bool) {
	addresses, err := p.Addresses(ctx, probe.Was)
	if err != nil || len(addresses) == 0 {
		return 0, false
	}
	status, err := p.Ask(ctx, probe, addresses[0])
	return status, err == nil
}

func (p *Prober) retry(ctx context.Context, probe zone.Probe, address string) (status int, err error) {
	for range tries {
		if status, err = p.Ask(ctx, probe, address); err == nil || ctx.Err() != nil {
			break
		}
	}
	return status, err
}

// Ask tests one address (an IP) once. The status is the HTTP status, or 0 for other probes.
func (p *Prober) Ask(ctx context.Context, probe zone.Probe, address string) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.Timeout, 5*time.Second))
	defer cancel()
	port := probe.Port
	if other, ok := p.Ports[port]; ok {
		port = other
	}
	at := net.JoinHostPort(address, strconv.Itoa(port))
	switch probe.Kind {
	case zone.ProbeTCP:
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
		if err != nil {
			return 0, err
		}
		return 0, conn.Close()
	case zone.ProbeTLS:
		conn, err := (&tls.Dialer{Config: &tls.Config{ServerName: probe.Host, RootCAs: p.Roots}}).DialContext(ctx,
			"tcp", at)
		if err != nil {
			return 0, fmt.Errorf("TLS with the name %s: %w", probe.Host, err)
		}
		return 0, conn.Close()
	case zone.ProbeHTTP:
		return request(ctx, probe.Host, at)
	}
	return 0, fmt.Errorf("unknown probe %q", probe.Kind)
}

// request asks for / with a Host; a redirect is an answer.
func request(ctx context.Context, host, at string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/", nil)
	if err != nil {
		return 0, err
	}
	r.Host = host
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusInternalServerError {
		return answer.StatusCode, fmt.Errorf("HTTP status %d", answer.StatusCode)
	}
	return answer.StatusCode, nil
}

// Addresses are those of load balancers, of which some may be given by name.
func (p *Prober) Addresses(ctx context.Context, targets []string) ([]string, error) {
	var all []string
	for _, target := range targets {
		if _, err := netip.ParseAddr(target); err == nil {
			all = append(all, target)
			continue
		}
		found, err := p.Resolve(ctx, target)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// errNoAddress is an answer without an address: NXDOMAIN, or an empty one.
var errNoAddress = errors.New("no address")

// Resolve asks the chosen resolvers, or the system's where none are chosen, for a name's addresses.
func (p *Prober) Resolve(ctx context.Context, name string) ([]string, error) {
	resolver := net.DefaultResolver
	if len(p.Resolvers) > 0 {
		resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, p.Resolvers[0])
		}}
	}
	found, err := resolver.LookupHost(ctx, strings.TrimSuffix(name, ".")+".")
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, errNoAddress, err)
	}
	return found, nil
}

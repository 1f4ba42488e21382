package dns_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	libdnsrfc2136 "github.com/libdns/rfc2136"
	mdns "github.com/miekg/dns"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/byrecord"
	"github.com/theseus-cni/theseus/internal/mirror/dns/dnstest"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

const (
	origin = "shop.example.org."
	// blue is the original's address, green the mirror's: both on this machine.
	blue, green = "127.0.0.11", "127.0.0.12"
	blueOwner   = `"heritage=external-dns,external-dns/owner=blue,external-dns/resource=ingress/shop/web"`
	greenOwner  = `"heritage=external-dns,external-dns/owner=green,external-dns/resource=ingress/shop/web"`
)

// wallClock is the real time.
type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// world is a zone on a real server with a real resolver in front, and two clusters' addresses that serve HTTP.
type world struct {
	t        testing.TB
	server   *dnstest.Server
	provider dns.Provider
	resolver *dnstest.Server
	port     int
	sites    map[string]*site
	actor    *dns.Actor
	gate     *dns.Gate
}

// site is what answers at a cluster's address; Broken makes it fail for a host, or for all by "".
type site struct {
	broken atomic.Pointer[string]
	served atomic.Int64
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.served.Add(1)
	if b := s.broken.Load(); b != nil && (*b == "" || *b == r.Host) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// byRecord is BIND behind libdns' own provider for it, which neither compares nor swaps.
const byRecord = "by-record"

// kinds are the ways in which zones are kept.
func kinds() []string {
	return append(slices.Collect(maps.Keys(dnstest.Kinds())), byRecord)
}

func piecewise(s *dnstest.Server) *byrecord.Zone {
	return &byrecord.Zone{Name: s.Zone, Provider: &libdnsrfc2136.Provider{Server: s.Address, KeyName: s.Key.Name,
		KeyAlg: s.Key.Algorithm, Key: s.Key.Secret}}
}

func newWorld(t testing.TB, kind string, n int) *world {
	t.Helper()
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf("s%d 2 IN A %s", i, blue), fmt.Sprintf("a-s%d 2 IN TXT %s", i, blueOwner))
	}
	w := &world{t: t, sites: map[string]*site{}}
	if start := dnstest.Kinds()[kind]; start != nil {
		w.server = start(t, origin, dnstest.ZoneText(origin, lines...))
		w.provider = w.server.Primary()
	} else {
		w.server = dnstest.BIND(t, origin, dnstest.ZoneText(origin, lines...))
		w.provider = piecewise(w.server)
	}
	w.resolver = dnstest.Unbound(t, w.server)
	w.serve()
	prober := &dns.Prober{Resolvers: []string{w.resolver.Address}, Ports: map[int]int{80: w.port}}
	w.actor = &dns.Actor{Zones: []*dns.Zone{{Name: origin, Provider: w.provider,
		Authoritative: []string{w.server.Address}}},
		Resolvers: []string{w.resolver.Address}, Prober: prober, Clock: wallClock{}}
	w.gate = &dns.Gate{Prober: prober, Clock: wallClock{}, Every: 100 * time.Millisecond}
	return w
}

// serve answers HTTP at both addresses, on one port.
func (w *world) serve() {
	first, err := net.Listen("tcp", blue+":0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.port = first.Addr().(*net.TCPAddr).Port
	second, err := net.Listen("tcp", net.JoinHostPort(green, strconv.Itoa(w.port)))
	if err != nil {
		w.t.Fatal(err)
	}
	for address, listener := range map[string]net.Listener{blue: first, green: second} {
		w.sites[address] = &site{}
		server := &http.Server{Handler: w.sites[address]}
		go server.Serve(listener) //nolint:errcheck // it is closed
		w.t.Cleanup(func() { server.Close() })
	}
}

// moves are those of n names from blue to green.
func moves(n int) []zone.Move {
	var all []zone.Move
	for i := range n {
		name := fmt.Sprintf("s%d.%s", i, origin)
		sets := func(address, owner string) []zone.RRSet {
			return []zone.RRSet{{Name: name, Type: "A", TTL: 2, Values: []string{address}},
				{Name: "a-" + name, Type: "TXT", TTL: 2, Values: []string{owner}}}
		}
		all = append(all, zone.Move{Zone: origin, Services: []string{"Ingress shop/web"},
			Unit: zone.Unit{Name: name, Before: sets(blue, blueOwner), After: sets(green, greenOwner)},
			Probes: []zone.Probe{{Kind: zone.ProbeHTTP, Host: strings.TrimSuffix(name, "."), Port: 80,
				At: []string{green}, Was: []string{blue}}}})
	}
	return all
}

// quick are options whose waits a test can bear.
func quick() shift.Options {
	return shift.Options{TTL: 1, First: 5, Growth: 20, Bake: step.Duration(300 * time.Millisecond),
		SeeWithin: step.Duration(30 * time.Second)}
}

func newPlan(moves []zone.Move, o shift.Options) *shift.Plan {
	return shift.New([]*zone.Zone{{Name: origin, Negative: 1}}, moves, o, "test", time.Unix(1, 0))
}

func (w *world) deps(records engine.Journal) engine.Deps {
	return engine.Deps{Actor: w.actor, Gate: w.gate, Journal: records, Clock: wallClock{},
		Control: dns.Wish(v1alpha1.DesireRun), Theseus: "test", Options: engine.Options{Patience: 5 * time.Second}}
}

func (w *world) run(p *shift.Plan, deps engine.Deps) engine.Outcome {
	w.t.Helper()
	outcome, err := engine.Run(w.t.Context(), dns.Plan(p), deps)
	if err != nil {
		w.t.Fatal(err)
	}
	return outcome
}

// all demands that every name of the zone is what it should be, by transfer.
func (w *world) all(address, owner string, ttl uint32, except ...string) {
	w.t.Helper()
	z, err := w.server.Primary().Load(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, set := range z.Sets {
		name := strings.TrimPrefix(set.Name, "a-")
		if !strings.HasPrefix(name, "s") || slices.Contains(except, name) || name == origin {
			continue
		}
		n++
		want := zone.RRSet{Name: set.Name, Type: set.Type, TTL: 2, Values: []string{owner}}
		if set.Type == "A" {
			want.TTL, want.Values = ttl, []string{address}
		}
		if !set.Equal(want) {
			w.t.Fatalf("the zone has %s, want %s", set, want)
		}
	}
	if n == 0 {
		w.t.Fatal("the zone has no name")
	}
}

// hammer is what clients saw.
type hammer struct {
	asked, nxdomain, empty, unanswered, requests, failed, wrong atomic.Int64
}

func (h *hammer) String() string {
	return fmt.Sprintf(
		"%d answers, %d NXDOMAIN, %d empty, %d unanswered; %d requests, %d failed, %d to a wrong address",
		h.asked.Load(), h.nxdomain.Load(), h.empty.Load(), h.unanswered.Load(), h.requests.Load(),
		h.failed.Load(), h.wrong.Load())
}

func (h *hammer) bad() int64 {
	return h.nxdomain.Load() + h.empty.Load() + h.unanswered.Load() + h.failed.Load() + h.wrong.Load()
}

// hammerAway resolves names at the resolver and at the server, and requests what it finds, until stopped.
func (w *world) hammerAway(n int) (h *hammer, stop func()) {
	h = &hammer{}
	ctx, cancel := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for i := range 3 {
		clients.Go(func() {
			from := w.resolver.Address
			if i == 2 {
				from = w.server.Address
			}
			for ctx.Err() == nil {
				w.client(h, from, fmt.Sprintf("s%d.%s", rand.IntN(n), origin))
				time.Sleep(500 * time.Microsecond) // the machine is to do the moving, too
			}
		})
	}
	return h, func() { cancel(); clients.Wait() }
}

func (w *world) client(h *hammer, server, name string) {
	m := new(mdns.Msg)
	m.SetQuestion(name, mdns.TypeA)
	var answer *mdns.Msg
	var err error
	for range 2 { // as a stub resolver does: a datagram may be lost on a busy machine
		if answer, _, err = (&mdns.Client{Timeout: 5 * time.Second}).Exchange(m, server); err == nil {
			break
		}
	}
	h.asked.Add(1)
	switch {
	case err != nil:
		h.unanswered.Add(1)
		return
	case answer.Rcode != mdns.RcodeSuccess:
		h.nxdomain.Add(1)
		return
	case len(answer.Answer) == 0:
		h.empty.Add(1)
		return
	}
	address := answer.Answer[0].(*mdns.A).A.String()
	if address != blue && address != green {
		h.wrong.Add(1)
		return
	}
	probe := zone.Probe{Kind: zone.ProbeHTTP, Host: strings.TrimSuffix(name, "."), Port: 80}
	h.requests.Add(1)
	if status, err := w.actor.Prober.Ask(context.Background(), probe, address); err != nil || status != http.StatusOK {
		h.failed.Add(1)
	}
}

// TestThereAndBack moves 1,000 names to the mirror and back on each real server, behind a real resolver, while
// clients resolve and request without pause: none of them may notice.
func TestThereAndBack(t *testing.T) {
	dnstest.NotShort(t)
	const n = 1000
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kind, n)
			h, stop := w.hammerAway(n)
			there := newPlan(moves(n), quick())
			begun := time.Now()
			if outcome := w.run(there, w.deps(&journal.Memory{})); outcome.End != engine.EndDone {
				t.Fatalf("%s: %s", outcome.End, outcome.Cause)
			}
			w.all(green, greenOwner, 2)
			took := time.Since(begun)
			if outcome := w.run(there.Back(), w.deps(&journal.Memory{})); outcome.End != engine.EndDone {
				t.Fatalf("back: %s: %s", outcome.End, outcome.Cause)
			}
			stop()
			w.all(blue, blueOwner, 2)
			t.Logf("%s: there in %s, back in %s: %s", kind, took.Round(time.Millisecond),
				(time.Since(begun) - took).Round(time.Millisecond), h)
			if h.bad() > 0 || h.asked.Load() < n || h.requests.Load() < n {
				t.Errorf("clients noticed, or asked too little: %s", h)
			}
			if w.sites[green].served.Load() == 0 {
				t.Error("the mirror served nobody")
			}
		})
	}
}

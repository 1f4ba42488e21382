package dns_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsroute53 "github.com/aws/aws-sdk-go-v2/service/route53"

	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/dnstest"
	"github.com/theseus-cni/theseus/internal/mirror/dns/route53"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// newFake is a world whose zone is in the fake of Route 53.
func newFake(t *testing.T, sets ...dnstest.R53Set) (*world, *dnstest.Route53, *route53.Zone) {
	t.Helper()
	fake := dnstest.NewRoute53(t, origin, sets...)
	z := &route53.Zone{Name: origin, ID: "Z1", Poll: time.Millisecond, Client: awsroute53.New(awsroute53.Options{
		BaseEndpoint: &fake.URL, Region: "us-east-1", RetryMaxAttempts: 1,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "s"}, nil
		})})}
	w := &world{t: t, sites: map[string]*site{}}
	w.serve()
	prober := &dns.Prober{Ports: map[int]int{80: w.port}}
	w.actor = &dns.Actor{Zones: []*dns.Zone{{Name: origin, Provider: z, Authoritative: []string{fake.Address}}},
		Prober: prober, Clock: &leaping{}}
	w.gate = &dns.Gate{Prober: prober, Clock: &leaping{}}
	return w, fake, z
}

// fakeMoves are those of moves, in the fake's form; the names are not asked by a gate, as it is no resolver.
func fakeMoves(n int) ([]zone.Move, []dnstest.R53Set) {
	all := moves(n)
	var sets []dnstest.R53Set
	for i := range all {
		all[i].Probes = nil
		for _, set := range all[i].Before {
			sets = append(sets, dnstest.R53(set.Name, set.Type, int64(set.TTL), set.Values...))
		}
	}
	return all, sets
}

func weighPlan(all []zone.Move, weights ...int64) *shift.Plan {
	o := quick()
	o.Weights, o.Bake = weights, 1
	return shift.New([]*zone.Zone{{Name: origin, Negative: 1, Can: zone.Can{Swap: true, Weights: true}}},
		all, o, "test", time.Unix(1, 0))
}

func (w *world) same(fake *dnstest.Route53, want []dnstest.R53Set) {
	w.t.Helper()
	text := func(sets []dnstest.R53Set) string {
		var lines []string
		for _, s := range sets {
			if s.Type != "SOA" {
				lines = append(lines, strings.Join(append([]string{s.Name, s.Type, s.SetIdentifier}, s.Values...), " "))
			}
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	if got, want := text(fake.Sets()), text(want); got != want {
		w.t.Fatalf("the zone has\n%s\nwant\n%s", got, want)
	}
}

// TestRoute53 moves names at the fake of Route 53 there and back, as a whole and in shares, with changes that take a
// while until they are in sync.
func TestRoute53(t *testing.T) {
	for what, weights := range map[string][]int64{"as a whole": nil, "in shares": {1, 10, 50}} {
		t.Run(what, func(t *testing.T) {
			all, before := fakeMoves(20)
			w, fake, _ := newFake(t, before...)
			fake.Lag = 2
			p := weighPlan(all, weights...)
			if outcome := w.run(p, w.deps(&journal.Memory{})); outcome.End != engine.EndDone {
				t.Fatalf("%s: %s", outcome.End, outcome.Cause)
			}
			var after []dnstest.R53Set
			for _, m := range all {
				for _, set := range m.After {
					after = append(after, dnstest.R53(set.Name, set.Type, int64(set.TTL), set.Values...))
				}
			}
			w.same(fake, after)
			w.shares(fake, weights)
			if outcome := w.run(p.Back(), w.deps(&journal.Memory{})); outcome.End != engine.EndDone {
				t.Fatalf("%s: %s", outcome.End, outcome.Cause)
			}
			w.same(fake, before)
			w.shares(fake, weights)
		})
	}
}

// shares demands that the mirror had these shares of one wave after the other, and forgets them.
func (w *world) shares(fake *dnstest.Route53, weights []int64) {
	w.t.Helper()
	var want []string
	for _, share := range weights {
		want = append(want, fmt.Sprintf("%d/%d", 100-share, share))
	}
	if got := fake.Shares; !slices.Equal(got[:min(len(got), len(want))], want) || len(want) == 0 && len(got) > 0 {
		w.t.Errorf("the shares were %v, want %v in each wave", got, want)
	}
	fake.Shares = nil
}

// TestRoute53Share: a service that is broken at the mirror is found while hardly anybody is sent there, and its name
// goes back; one whose records would be of other types moves as a whole.
func TestRoute53Share(t *testing.T) {
	all, before := fakeMoves(4)
	w, fake, z := newFake(t, before...)
	w.actor.Prober.Resolvers = []string{fake.Address}
	for i, m := range moves(4) {
		all[i].Probes = m.Probes
	}
	host := all[1].Probes[0].Host
	// after 1 %, and the proof for 10 %
	w.actor.Zones[0].Provider = &whenever{Provider: z, at: 3, do: func() { w.sites[green].broken.Store(&host) }}
	outcome := w.run(weighPlan(all, 1, 10, 50), w.deps(&journal.Memory{}))
	rolledBack(t, outcome, host+": at "+green+": HTTP status 503")
	w.same(fake, before)
	if !slices.Equal(fake.Shares, []string{"99/1", "90/10", "99/1"}) {
		t.Errorf("the shares were %v", fake.Shares)
	}

	alias := zone.RRSet{Name: all[0].Name, Type: zone.CNAME, TTL: 2, Values: []string{"green.example.org."}}
	all[0].After = []zone.RRSet{alias, all[0].After[1]}
	for i := range all {
		all[i].Probes = nil
	}
	if outcome := w.run(weighPlan(all, 50), w.deps(&journal.Memory{})); outcome.End != engine.EndDone {
		t.Errorf("%s: %s", outcome.End, outcome.Cause)
	}
}

// TestRoute53Crash ends the process at every write while names are moved in shares; another one goes on to the same
// end.
func TestRoute53Crash(t *testing.T) {
	for points, crashed := 1, true; crashed; points++ {
		all, before := fakeMoves(3)
		w, fake, z := newFake(t, before...)
		w.provider = z
		p, records := weighPlan(all, 10, 50), &journal.Memory{}
		if _, crashed = w.attempt(p, records, points); !crashed && points < 40 {
			t.Errorf("only %d points", points-1)
		}
		if outcome, again := w.attempt(p, records, 0); again || outcome.End != engine.EndDone {
			t.Fatalf("crashed at point %d: %s: %s", points, outcome.End, outcome.Cause)
		}
		var after []dnstest.R53Set
		for _, m := range all {
			for _, set := range m.After {
				after = append(after, dnstest.R53(set.Name, set.Type, int64(set.TTL), set.Values...))
			}
		}
		w.same(fake, after)
	}
}

// TestRoute53Alias moves an alias of one load balancer to another of its kind.
func TestRoute53Alias(t *testing.T) {
	alias := func(lb string) dnstest.R53Set {
		return dnstest.R53Set{Name: "www." + origin, Type: "A", Alias: &dnstest.R53Alias{HostedZoneId: "Z35",
			DNSName: "dualstack." + lb + ".us-east-1.elb.amazonaws.com.", EvaluateTargetHealth: true}}
	}
	w, fake, z := newFake(t, alias("blue"))
	loaded, err := z.Load(t.Context())
	if err != nil || len(loaded.Sets) != 1 || loaded.Negative != 900 {
		t.Fatalf("%+v, %v", loaded, err)
	}
	after := loaded.Sets[0]
	after.Alias = &zone.Alias{Name: "dualstack.green.us-east-1.elb.amazonaws.com.", Zone: "Z35", Health: true}
	p := weighPlan([]zone.Move{{Zone: origin,
		Unit: zone.Unit{Name: "www." + origin, Before: loaded.Sets, After: []zone.RRSet{after}}}}, 50)
	if outcome := w.run(p, w.deps(&journal.Memory{})); outcome.End != engine.EndDone {
		t.Fatalf("%s: %s", outcome.End, outcome.Cause)
	}
	if got := fake.Sets(); got[len(got)-1].Alias.DNSName != after.Alias.Name {
		t.Errorf("the alias is %+v", got[len(got)-1].Alias)
	}
}

// TestRoute53Refuses changes a record in between, denies access, and is busy.
func TestRoute53Refuses(t *testing.T) {
	all, before := fakeMoves(12)
	foreign := "s11." + origin
	w, fake, z := newFake(t, before...)
	w.actor.Zones[0].Provider = &whenever{Provider: z, at: 3, do: func() {
		fake.Meddle(dnstest.R53(foreign, "A", 1, theirs))
	}}
	outcome := w.run(weighPlan(all), w.deps(&journal.Memory{}))
	rolledBack(t, outcome, "another program or person changed the records: "+foreign)
	for _, set := range fake.Sets() {
		if set.Type == "A" && (set.Values[0] != blue) != (set.Name == foreign) {
			t.Errorf("%s is %s", set.Name, set.Values)
		}
	}
	if err := z.Commit(t.Context(), zone.Transaction{Zone: origin, Units: []zone.Unit{all[11].Unit}}); !errors.Is(err,
		zone.ErrConflict) {
		t.Errorf("a record that somebody changed: %v", err)
	}
	for code, want := range map[string]error{"AccessDenied": zone.ErrRefused, "ExpiredToken": zone.ErrRefused,
		"NoSuchHostedZone": zone.ErrRefused,
		"Throttling":       engine.ErrUnavailable, "PriorRequestNotComplete": engine.ErrUnavailable,
		"InternalFailure": engine.ErrUnavailable} {
		fake.Fail, fake.FailStatus = code, http.StatusBadRequest
		_, err := z.Load(t.Context())
		if !errors.Is(err, want) || want == zone.ErrRefused && engine.HintOf(err) == "" {
			t.Errorf("%s: %v, hint %q", code, err, engine.HintOf(err))
		}
	}
	z.Client = awsroute53.New(awsroute53.Options{BaseEndpoint: &fake.URL, Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(
			func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, errors.New("none") })})
	if _, err := z.Load(t.Context()); !errors.Is(err, zone.ErrRefused) || engine.HintOf(err) == "" {
		t.Errorf("without credentials: %v", err)
	}
}

// Package externaldns compares how Theseus reads and hands over the ownership of records with external-dns' own code:
// its registry, its planner and its RFC 2136 provider, on a real BIND.
package externaldns

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/external-dns/endpoint"
	"sigs.k8s.io/external-dns/pkg/apis/externaldns"
	"sigs.k8s.io/external-dns/plan"
	"sigs.k8s.io/external-dns/provider/rfc2136"
	"sigs.k8s.io/external-dns/registry"
	"sigs.k8s.io/external-dns/registry/mapper"
	"sigs.k8s.io/external-dns/registry/txt"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/mirror/dns/dnstest"
	"github.com/theseus-cni/theseus/internal/mirror/dns/names"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

const (
	origin = "shop.example.org."
	blue   = "192.0.2.1"
	green  = "192.0.2.2"
)

// TestNames compares the names of ownership records.
func TestNames(t *testing.T) {
	for _, r := range []zone.Registry{{}, {Prefix: "x-"}, {Prefix: "Own."},
		{Suffix: "-x"}, {Prefix: "%{record_type}-x-"}, {Suffix: "-%{record_type}"},
		{Prefix: "p.", Wildcard: "Any"}, {Wildcard: "any"}} {
		theirs := mapper.NewAffixNameMapper(r.Prefix, r.Suffix, r.Wildcard)
		for _, name := range []string{"www.shop.example.org", "*.shop.example.org", "a.b.c.shop.example.org",
			"a-www.shop.example.org"} {
			for _, kind := range zone.AddressTypes() {
				if got, want := r.NameOf(name+".", kind), theirs.ToTXTName(name, kind)+"."; got != want {
					t.Errorf("%+v: %s %s is owned by %s, external-dns says %s", r, name, kind, got, want)
				}
			}
		}
	}
}

// TestLabels compares how the data of ownership records is read and written.
func TestLabels(t *testing.T) {
	for _, text := range []string{
		`"heritage=external-dns,external-dns/owner=blue,external-dns/resource=ingress/shop/web"`,
		`"heritage=external-dns,external-dns/owner=default"`,
		`"v=spf1 -all"`, `"heritage=other,external-dns/owner=blue"`, `""`, `"external-dns/owner=blue"`} {
		labels, err := endpoint.NewLabelsFromStringPlain(text)
		owner, ok := zone.Owner(text)
		if ok != (err == nil) || ok && owner != labels[endpoint.OwnerLabelKey] {
			t.Errorf("%s: owner %q, %v; external-dns says %v, %v", text, owner, ok, labels, err)
		}
		if err != nil {
			continue
		}
		labels[endpoint.OwnerLabelKey] = "green"
		if got, want := zone.WithOwner(text, "green"), labels.SerializePlain(true); got != want {
			t.Errorf("handed over: %s, external-dns writes %s", got, want)
		}
	}
}

// controller is one cluster's external-dns, of which every round is asked for.
type controller struct {
	t     *testing.T
	owner string
	registry.Registry
}

func newController(t *testing.T, server *dnstest.Server, owner string, r zone.Registry) *controller {
	t.Helper()
	host, port, err := net.SplitHostPort(server.Address)
	if err != nil {
		t.Fatal(err)
	}
	c := externaldns.NewConfig()
	c.RFC2136Host, c.RFC2136Zone, c.RFC2136AXFR = []string{host}, []string{strings.TrimSuffix(origin, ".")}, true
	c.RFC2136Port, _ = strconv.Atoi(port)
	c.RFC2136TSIGKeyName, c.RFC2136TSIGSecret, c.RFC2136TSIGSecretAlg = server.Key.Name,
		server.Key.Secret, "hmac-sha256"
	c.RFC2136LoadBalancingStrategy, c.RFC2136BatchChangeSize = "disabled", 50
	c.TXTOwnerID, c.TXTPrefix, c.TXTSuffix, c.TXTWildcardReplacement = owner, r.Prefix, r.Suffix, r.Wildcard
	c.ManagedDNSRecordTypes = zone.AddressTypes()
	p, err := rfc2136.New(context.Background(), c, endpoint.NewDomainFilter([]string{strings.TrimSuffix(origin, ".")}))
	if err != nil {
		t.Fatal(err)
	}
	own, err := txt.New(c, p)
	if err != nil {
		t.Fatal(err)
	}
	return &controller{t, owner, own}
}

// round does what external-dns does once a minute under the policy sync, and says what it changed.
func (c *controller) round(wanted ...*endpoint.Endpoint) string {
	c.t.Helper()
	ctx := c.t.Context()
	records, err := c.Records(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	p := (&plan.Plan{Policies: []plan.Policy{&plan.SyncPolicy{}}, Current: records, Desired: wanted, OwnerID: c.owner,
		ManagedRecords: zone.AddressTypes()}).Calculate()
	if !p.Changes.HasChanges() {
		return ""
	}
	if err := c.ApplyChanges(ctx, p.Changes); err != nil {
		c.t.Fatal(err)
	}
	return fmt.Sprintf("create %v, update %v, delete %v", p.Changes.Create, p.Changes.UpdateNew, p.Changes.Delete)
}

// wants is what external-dns makes of the objects of web.
func wants(kind, target string) []*endpoint.Endpoint {
	var all []*endpoint.Endpoint
	for _, name := range []string{"www", "api", "*.any"} {
		e := endpoint.NewEndpointWithTTL(name+"."+strings.TrimSuffix(origin, "."), kind, 60, target)
		e.Labels[endpoint.ResourceLabelKey] = "ingress/shop/web"
		all = append(all, e)
	}
	return all
}

// objects is a cluster with the Ingress of web.
func objects(t *testing.T, status string) *cluster.Snapshot {
	t.Helper()
	b := document.New("test")
	text := fmt.Sprintf(
		`{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "web", "namespace": "shop"},
"spec": {"rules": [{"host": "www.%[1]s"}, {"host": "api.%[1]s"}, {"host": "*.any.%[1]s"}]}, "status": {"loadBalancer": {"ingress": [%[2]s]}}}`,
		strings.TrimSuffix(origin, "."), status)
	if err := b.Add("cluster", strings.NewReader(text), false); err != nil {
		t.Fatal(err)
	}
	s, _ := b.Snapshot()
	return s
}

// TestHandOver lets the original's external-dns make records, moves them as Theseus does, and lets both have rounds:
// neither changes anything, not even when the original's objects are gone. Back likewise.
func TestHandOver(t *testing.T) {
	for what, c := range map[string]struct {
		kind, target, status string
		registry             zone.Registry
	}{
		"addresses": {"A", green, `{"ip": "` + green + `"}`, zone.Registry{}},
		"a prefix": {"A", green, `{"ip": "` + green + `"}`,
			zone.Registry{Prefix: "own-%{record_type}-", Wildcard: "any"}},
		"a suffix": {"A", green, `{"ip": "` + green + `"}`, zone.Registry{Suffix: "-own", Wildcard: "any"}},
		"an address to name": {"CNAME", "lb.example.net", `{"hostname": "lb.example.net"}`,
			zone.Registry{Wildcard: "any"}},
		"to IPv6": {"AAAA", "2001:db8::2", `{"ip": "2001:db8::2"}`, zone.Registry{}},
	} {
		t.Run(what, func(t *testing.T) {
			server := dnstest.BIND(t, origin, dnstest.ZoneText(origin))
			one, other := newController(t, server, "blue", c.registry), newController(t, server, "green", c.registry)
			if one.round(wants("A", blue)...) == "" {
				t.Fatal("external-dns made nothing")
			}
			quiet(t, one, other, wants("A", blue), nil)

			primary := server.Primary()
			z, err := primary.Load(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var moves zone.Transaction
			moves.Zone = origin
			for _, e := range names.Inventory(objects(t, `{"ip": "`+blue+`"}`), objects(t, c.status), []*zone.Zone{z},
				names.Options{Registry: c.registry, Original: "blue", Mirror: "green"}) {
				if e.Move != nil {
					if !slices.Equal(e.Owners, []string{"blue"}) {
						t.Errorf("%s: owners %q", e.Name, e.Owners)
					}
					moves.Units = append(moves.Units, e.Move.Unit)
				} else if e.Original != nil {
					t.Errorf("%s does not move: %s", e.Name, e.Why)
				}
			}
			if len(moves.Units) != 3 {
				t.Fatalf("%d names move", len(moves.Units))
			}
			if err := primary.Commit(t.Context(), moves); err != nil {
				t.Fatal(err)
			}
			quiet(t, one, other, wants("A", blue), wants(c.kind, c.target))
			quiet(t, one, other, nil, wants(c.kind, c.target)) // the original's objects are gone
			if err := primary.Commit(t.Context(), moves.Inverse()); err != nil {
				t.Fatal(err)
			}
			quiet(t, one, other, wants("A", blue), wants(c.kind, c.target))
			quiet(t, one, other, wants("A", blue), nil)

			// That they are quiet means something: without the hand-over the original's would take the record back.
			for i := range moves.Units {
				u := &moves.Units[i]
				var after []zone.RRSet
				for _, set := range u.Before {
					if set.IsAddress() {
						set.Values = []string{"192.0.2.3"}
					}
					after = append(after, set)
				}
				u.After = after
			}
			if err := primary.Commit(t.Context(), moves); err != nil {
				t.Fatal(err)
			}
			if one.round(wants("A", blue)...) == "" {
				t.Error("external-dns does not mind a record of its own that was changed")
			}
		})
	}
}

// quiet gives both a round, and demands that they change nothing.
func quiet(t *testing.T, one, other *controller, wanted, others []*endpoint.Endpoint) {
	t.Helper()
	if did := one.round(wanted...); did != "" {
		t.Fatalf("the original's external-dns did: %s", did)
	}
	if did := other.round(others...); did != "" {
		t.Fatalf("the mirror's external-dns did: %s", did)
	}
}

package names_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/mirror/dns/names"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

const origin = "shop.example.org."

func snapshot(t *testing.T, text string) *cluster.Snapshot {
	t.Helper()
	b := document.New("test")
	if err := b.Add("cluster.yaml", strings.NewReader(text), false); err != nil {
		t.Fatal(err)
	}
	s, _ := b.Snapshot()
	return s
}

// objects are a cluster's; each %s is its address.
const objects = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec:
  rules:
  - host: web.shop.example.org
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
  tls: [{hosts: [web.shop.example.org]}]
status: {loadBalancer: {ingress: [{ip: "%[1]s"}]}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {app: web}}
spec: {containers: [{name: c, image: i}]}
status: {conditions: [{type: Ready, status: "%[2]s"}]}
---
apiVersion: v1
kind: Service
metadata: {name: mail, namespace: shop, annotations: {external-dns.alpha.kubernetes.io/hostname: "Mail.shop.example.org, smtp.shop.example.org", external-dns.alpha.kubernetes.io/ttl: "60"}}
spec: {type: LoadBalancer, ports: [{port: 25, protocol: TCP}, {port: 53, protocol: UDP}]}
status: {loadBalancer: {ingress: [{ip: "%[1]s"}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gate, namespace: infra}
spec: {listeners: [{name: a, port: 80, protocol: HTTP}, {name: b, port: 8443, protocol: HTTPS}]}
status: {addresses: [{type: IPAddress, value: "%[1]s"}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: api, namespace: shop}
spec: {hostnames: [api.shop.example.org], parentRefs: [{name: gate, namespace: infra}], rules: [{backendRefs: [{name: web, port: 80}]}]}
---
apiVersion: externaldns.k8s.io/v1alpha1
kind: DNSEndpoint
metadata: {name: extra, namespace: shop}
spec: {endpoints: [{dnsName: extra.shop.example.org, recordType: A, targets: ["%[1]s"]}]}
---
apiVersion: v1
kind: Service
metadata: {name: other, namespace: shop, annotations: {external-dns.alpha.kubernetes.io/hostname: not.shop.example.org, external-dns.alpha.kubernetes.io/controller: mine}}
spec: {ports: [{port: 25}]}
`

func site(t *testing.T, address string, more ...string) *cluster.Snapshot {
	return snapshot(t, fmt.Sprintf(objects, address, "True")+strings.Join(more, ""))
}

func owned(owner string) string { return `"heritage=external-dns,external-dns/owner=` + owner + `"` }

// zoneOf has an A record for each name, and TXT records as given, as name=owner.
func zoneOf(address string, hosts []string, txt ...string) *zone.Zone {
	z := &zone.Zone{Name: origin, Negative: 60}
	for _, host := range hosts {
		z.Sets = append(z.Sets, zone.RRSet{Name: host + "." + origin, Type: "A", TTL: 300, Values: []string{address}})
	}
	for _, one := range txt {
		name, owner, _ := strings.Cut(one, "=")
		z.Sets = append(z.Sets, zone.RRSet{Name: name + "." + origin, Type: "TXT", TTL: 300,
			Values: []string{owned(owner)}})
	}
	zone.Sorted(z.Sets)
	return z
}

const blue, green = "192.0.2.1", "192.0.2.2"

var hosts = []string{"api", "extra", "mail", "smtp", "web"}

func find(t *testing.T, entries []names.Entry, host string) names.Entry {
	t.Helper()
	at := slices.IndexFunc(entries, func(e names.Entry) bool { return e.Name == host+"."+origin })
	if at < 0 {
		t.Fatalf("%s is not in the inventory", host)
	}
	return entries[at]
}

// TestMoves finds every kind of object's names, and what must answer.
func TestMoves(t *testing.T) {
	z := zoneOf(blue, append([]string{"foreign"}, hosts...), "a-web=blue")
	entries := names.Inventory(site(t, blue), site(t, green), []*zone.Zone{z},
		names.Options{Original: "blue", Mirror: "green"})
	for host, want := range map[string]string{"web": "http:80 tls:443", "mail": "tcp:25", "smtp": "tcp:25",
		"api": "http:80 tls:8443", "extra": ""} {
		e := find(t, entries, host)
		if e.Verdict != names.Moves {
			t.Errorf("%s: %s, %s", host, e.Verdict, e.Why)
			continue
		}
		var got []string
		for _, p := range e.Move.Probes {
			got = append(got, fmt.Sprintf("%s:%d", p.Kind, p.Port))
			if !slices.Equal(p.At, []string{green}) || !slices.Equal(p.Was, []string{blue}) ||
				p.Host != host+".shop.example.org" {
				t.Errorf("%s: probe %+v", host, p)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: probes %q, want %q", host, got, want)
		}
	}
	web := find(t, entries, "web").Move
	if len(web.After) != 2 || web.After[0].Values[0] != green || web.After[0].TTL != 300 ||
		web.After[1].Values[0] != owned("green") {
		t.Errorf("web moves to %v", web.After)
	}
	if e := find(t, entries, "foreign"); e.Verdict != names.Stays {
		t.Errorf("a name of nobody: %s", e.Verdict)
	}
	if slices.ContainsFunc(entries, func(e names.Entry) bool { return strings.HasPrefix(e.Name, "not.") }) {
		t.Error("an object of another controller counts")
	}
}

// TestBlocked has a case for each reason why a name does not move.
func TestBlocked(t *testing.T) {
	second := func(address string) string {
		return fmt.Sprintf("---\napiVersion: networking.k8s.io/v1\nkind: Ingress\n"+
			"metadata: {name: second, namespace: other}\nspec: {rules: [{host: web.shop.example.org}]}\n"+
			"status: {loadBalancer: {ingress: [{ip: %q}]}}\n", address)
	}
	o := names.Options{Original: "blue", Mirror: "green"}
	empty := snapshot(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	for why, c := range map[string]struct {
		original, mirror *cluster.Snapshot
		zone             *zone.Zone
		options          names.Options
		verdict          names.Verdict
	}{
		"two objects have it with different addresses": {site(t, blue, second("192.0.2.7")), site(t, green),
			zoneOf(blue, hosts), o, names.Blocked},
		"two objects of the mirror": {site(t, blue), site(t, green, second("192.0.2.7")),
			zoneOf(blue, hosts), o, names.Blocked},
		"it has two owners": {site(t, blue), site(t, green),
			zoneOf(blue, hosts, "a-web=blue", "aaaa-web=green"), o, names.Blocked},
		"it has another owner": {site(t, blue), site(t, green),
			zoneOf(blue, hosts, "a-web=red"), o, names.Blocked},
		"no object of either cluster has this " +
			"name": {empty, empty, zoneOf(blue, hosts, "a-web=blue"), o, names.Blocked},
		"no object of the mirror has it": {site(t, blue), empty, zoneOf(blue, hosts), o, names.Blocked},
		"has no address yet":             {site(t, blue), site(t, ""), zoneOf(blue, hosts), o, names.Blocked},
		"both clusters have the same " +
			"address": {site(t, blue), site(t, blue), zoneOf(blue, hosts), o, names.Blocked},
		"it points to 192.0.2.9": {site(t, blue), site(t, green),
			zoneOf("192.0.2.9", hosts), o, names.Blocked},
		"no pod of Service shop/web is Ready": {site(t, blue),
			snapshot(t, fmt.Sprintf(objects, green, "False")), zoneOf(blue, hosts), o, names.Blocked},
		"the owner ID of the mirror is unknown": {site(t, blue), site(t, green),
			zoneOf(blue, hosts, "a-web=blue"), names.Options{Original: "blue"}, names.Blocked},
		"the mirror's external-dns": {site(t, blue), site(t, green),
			zoneOf(blue, hosts, "a-web=green"), o, names.Blocked},
		"it points to the mirror": {site(t, blue), site(t, green), zoneOf(green, hosts, "a-web=green"), o, names.Moved},
		"it belongs to no object": {empty, empty, zoneOf(blue, hosts), o, names.Stays},
		"the zone has no record":  {site(t, blue), site(t, green), zoneOf(blue, hosts[:2]), o, names.Stays},
	} {
		e := find(t, names.Inventory(c.original, c.mirror, []*zone.Zone{c.zone}, c.options), "web")
		if e.Verdict != c.verdict || !strings.Contains(e.Why, why) || e.Verdict == names.Blocked && e.Hint == "" {
			t.Errorf("%s: %s, %q, hint %q", why, e.Verdict, e.Why, e.Hint)
		}
	}
	// Two objects that share the load balancer share the name, too.
	e := find(t, names.Inventory(site(t, blue, second(blue)), site(t, green, second(green)),
		[]*zone.Zone{zoneOf(blue, hosts)}, o), "web")
	if e.Verdict != names.Moves || len(e.Move.Services) != 2 {
		t.Errorf("shared: %s, %s", e.Verdict, e.Why)
	}
}

// TestAlias moves an alias only within its kind of load balancer.
func TestAlias(t *testing.T) {
	cluster := func(host string) *cluster.Snapshot {
		return snapshot(t, strings.ReplaceAll(fmt.Sprintf(objects, "X", "True"), `ip: "X"`, "hostname: "+host))
	}
	z := &zone.Zone{Name: origin, Sets: []zone.RRSet{{Name: "web." + origin, Type: "A",
		Alias: &zone.Alias{Name: "dualstack.blue.us-east-1.elb.amazonaws.com.", Zone: "Z35"}}}}
	e := find(t, names.Inventory(cluster("blue.us-east-1.elb.amazonaws.com"),
		cluster("green.us-east-1.elb.amazonaws.com"), []*zone.Zone{z}, names.Options{}), "web")
	if e.Move == nil || e.Move.After[0].Alias.Name != "dualstack.green.us-east-1.elb.amazonaws.com." ||
		e.Move.After[0].Alias.Zone != "Z35" {
		t.Errorf("%s: %s: %+v", e.Verdict, e.Why, e.Move)
	}
	e = find(t, names.Inventory(cluster("blue.us-east-1.elb.amazonaws.com"),
		cluster("green.elb.us-east-1.amazonaws.com"), []*zone.Zone{z}, names.Options{}), "web")
	if e.Verdict != names.Blocked {
		t.Errorf("another kind: %s", e.Verdict)
	}
}

// TestDisarmed: a copy whose annotation was put aside still stands for its names, and it is said that nobody guards
// them there.
func TestDisarmed(t *testing.T) {
	z := zoneOf(blue, hosts, "a-mail=blue")
	text := strings.ReplaceAll(fmt.Sprintf(objects, green, "True"), "external-dns.alpha.kubernetes.io/hostname: \"Mail",
		"disarmed.theseus.dev/hostname: \"Mail")
	entries := names.Inventory(site(t, blue), snapshot(t, text), []*zone.Zone{z},
		names.Options{Original: "blue", Mirror: "green"})
	mail := find(t, entries, "mail")
	if mail.Verdict != names.Moves || !slices.ContainsFunc(mail.Warnings,
		func(w string) bool { return strings.Contains(w, "hidden from external-dns") }) {
		t.Errorf("mail: %s %s %v", mail.Verdict, mail.Why, mail.Warnings)
	}
	if smtp := find(t, entries, "smtp"); smtp.Verdict != names.Moves ||
		slices.ContainsFunc(smtp.Warnings, func(w string) bool { return strings.Contains(w, "hidden") }) {
		t.Errorf("smtp, which external-dns does not own: %s %v", smtp.Verdict, smtp.Warnings)
	}
}

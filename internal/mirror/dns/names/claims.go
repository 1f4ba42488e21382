// Package names determines which DNS names belong to which service of a cluster, compares them with the zones and with
// a mirror of the cluster, and decides for each name whether it can move.
package names

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

// The annotations of external-dns, as of v0.22.
const (
	annotation         = "external-dns.alpha.kubernetes.io/"
	annotationHostname = annotation + "hostname"
	annotationTarget   = annotation + "target"
	annotationTTL      = annotation + "ttl"
	annotationControl  = annotation + "controller"
	// disarmedHostname is what became of annotationHostname in a copy.
	disarmedHostname = v1alpha1.DisarmedPrefix + "hostname"
)

// Claim is an object of a cluster that wants a name.
type Claim struct {
	// Name is canonical.
	Name string `json:"name"`
	// Object is kind, namespace and name: "Ingress shop/web".
	Object string `json:"object"`
	// Targets are the addresses that the name should have: IPs, or canonical names of load balancers. None while
	// the cluster has not given it any.
	Targets []string `json:"targets,omitempty"`
	// Unready says why the service behind it does not serve; empty if it does, or if that is unknown.
	Unready string `json:"unready,omitempty"`
	// TTL is the TTL in the annotation; empty without one.
	TTL string `json:"ttl,omitempty"`
	// Disarmed is true if the object is a copy whose names are hidden from external-dns.
	Disarmed bool `json:"disarmed,omitempty"`
	// Ports are the ports that answer at the targets.
	Ports []Port `json:"ports,omitempty"`
}

// Port is one that answers at a claim's address.
type Port struct {
	Kind zone.ProbeKind `json:"kind"`
	Port int            `json:"port"`
}

// Claims are what the objects of a cluster want, sorted by name and object: Services, Ingresses, routes of
// Gateways, and external-dns' DNSEndpoints. Names that are none are left out.
func Claims(s *cluster.Snapshot) []Claim {
	c := &collector{snapshot: s, ready: readiness(s)}
	for i := range s.Services {
		c.service(&s.Services[i])
	}
	for _, object := range s.OtherOf("networking.k8s.io", "Ingress") {
		var ingress networkingv1.Ingress
		if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &ingress) == nil {
			c.ingress(&ingress)
		}
	}
	c.gateways()
	for _, object := range s.OtherOf("externaldns.k8s.io", "DNSEndpoint") {
		c.endpoint(&object)
	}
	slices.SortStableFunc(c.claims, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Object, b.Object))
	})
	return c.claims
}

type collector struct {
	snapshot *cluster.Snapshot
	ready    func(namespace, service string) string
	claims   []Claim
}

// add makes a claim for each name; a name is claimed once by an object.
func (c *collector) add(hosts []string, claim Claim) {
	for _, host := range hosts {
		name, err := zone.Canonical(strings.TrimSpace(host))
		if err != nil {
			continue
		}
		claim.Name = name
		if !slices.ContainsFunc(c.claims, func(o Claim) bool { return o.Name == name && o.Object == claim.Object }) {
			c.claims = append(c.claims, claim)
		}
	}
}

func object(kind string, meta metav1.Object) string {
	return kind + " " + meta.GetNamespace() + "/" + meta.GetName()
}

// foreign says whether external-dns is told to leave an object alone.
func foreign(meta metav1.Object) bool {
	controller := meta.GetAnnotations()[annotationControl]
	return controller != "" && controller != "dns-controller"
}

func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// hostnames are those of an object's annotation, of a copy too.
func hostnames(meta metav1.Object) (hosts []string, disarmed bool) {
	if hosts := list(meta.GetAnnotations()[annotationHostname]); len(hosts) > 0 {
		return hosts, false
	}
	hosts = list(meta.GetAnnotations()[disarmedHostname])
	return hosts, len(hosts) > 0
}

func (c *collector) service(s *corev1.Service) {
	hosts, disarmed := hostnames(s)
	if len(hosts) == 0 || foreign(s) {
		return
	}
	claim := Claim{Object: object("Service", s), Disarmed: disarmed, TTL: s.Annotations[annotationTTL],
		Unready: c.ready(s.Namespace, s.Name)}
	for _, port := range s.Spec.Ports {
		if port.Protocol == corev1.ProtocolTCP || port.Protocol == "" {
			claim.Ports = append(claim.Ports, Port{zone.ProbeTCP, int(port.Port)})
		}
	}
	var found []string
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		found = append(found, ingress.IP, ingress.Hostname)
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		found = append(found, s.Spec.ExternalName)
	}
	found = append(found, s.Spec.ExternalIPs...)
	claim.Targets = targets(s, found)
	c.add(hosts, claim)
}

func (c *collector) ingress(i *networkingv1.Ingress) {
	if foreign(i) {
		return
	}
	hosts, disarmed := hostnames(i)
	claim := Claim{Object: object("Ingress", i), Disarmed: disarmed, TTL: i.Annotations[annotationTTL]}
	for _, rule := range i.Spec.Rules {
		hosts = append(hosts, rule.Host)
		if rule.HTTP == nil {
			continue
		}
		for _, path := range rule.HTTP.Paths {
			if path.Backend.Service != nil && claim.Unready == "" {
				claim.Unready = c.ready(i.Namespace, path.Backend.Service.Name)
			}
		}
	}
	secure := map[string]bool{}
	for _, tls := range i.Spec.TLS {
		for _, host := range tls.Hosts {
			hosts = append(hosts, host)
			secure[host] = true
		}
	}
	var found []string
	for _, at := range i.Status.LoadBalancer.Ingress {
		found = append(found, at.IP, at.Hostname)
	}
	claim.Targets = targets(i, found)
	for _, host := range hosts {
		claim.Ports = []Port{{zone.ProbeHTTP, 80}}
		if secure[host] {
			claim.Ports = append(claim.Ports, Port{zone.ProbeTLS, 443})
		}
		c.add([]string{host}, claim)
	}
}

// gateways claims the host names of routes at the addresses of the Gateways that they are attached to.
func (c *collector) gateways() {
	const group = "gateway.networking.k8s.io"
	all := map[string]unstructured.Unstructured{}
	for _, gateway := range c.snapshot.OtherOf(group, "Gateway") {
		all[gateway.GetNamespace()+"/"+gateway.GetName()] = gateway
	}
	for _, kind := range []string{"HTTPRoute", "GRPCRoute", "TLSRoute"} {
		for _, route := range c.snapshot.OtherOf(group, kind) {
			if foreign(&route) {
				continue
			}
			hosts, _, _ := unstructured.NestedStringSlice(route.Object, "spec", "hostnames")
			more, disarmed := hostnames(&route)
			hosts = append(hosts, more...)
			parents, _, _ := unstructured.NestedSlice(route.Object, "spec", "parentRefs")
			claim := Claim{Object: object(kind, &route), Disarmed: disarmed, TTL: route.GetAnnotations()[annotationTTL],
				Unready: c.backends(&route)}
			var found []string
			for _, parent := range parents {
				ref, _ := parent.(map[string]any)
				namespace, _ := ref["namespace"].(string)
				name, _ := ref["name"].(string)
				gateway, ok := all[cmp.Or(namespace, route.GetNamespace())+"/"+name]
				if !ok {
					continue
				}
				found = append(found, list(gateway.GetAnnotations()[annotationTarget])...)
				if len(found) == 0 {
					found = addresses(&gateway)
				}
				claim.Ports = append(claim.Ports, listeners(&gateway)...)
			}
			claim.Targets = targets(&route, found)
			c.add(hosts, claim)
		}
	}
}

func (c *collector) backends(route *unstructured.Unstructured) string {
	rules, _, _ := unstructured.NestedSlice(route.Object, "spec", "rules")
	for _, rule := range rules {
		fields, _ := rule.(map[string]any)
		refs, _, _ := unstructured.NestedSlice(fields, "backendRefs")
		for _, ref := range refs {
			backend, _ := ref.(map[string]any)
			name, _ := backend["name"].(string)
			namespace, _ := backend["namespace"].(string)
			if kind, ok := backend["kind"].(string); ok && kind != "Service" {
				continue
			}
			if why := c.ready(cmp.Or(namespace, route.GetNamespace()), name); why != "" {
				return why
			}
		}
	}
	return ""
}

func addresses(gateway *unstructured.Unstructured) []string {
	var found []string
	entries, _, _ := unstructured.NestedSlice(gateway.Object, "status", "addresses")
	for _, entry := range entries {
		fields, _ := entry.(map[string]any)
		value, _ := fields["value"].(string)
		found = append(found, value)
	}
	return found
}

func listeners(gateway *unstructured.Unstructured) []Port {
	var ports []Port
	entries, _, _ := unstructured.NestedSlice(gateway.Object, "spec", "listeners")
	for _, entry := range entries {
		fields, _ := entry.(map[string]any)
		protocol, _ := fields["protocol"].(string)
		number, _, _ := unstructured.NestedInt64(fields, "port")
		kind := map[string]zone.ProbeKind{"HTTP": zone.ProbeHTTP, "HTTPS": zone.ProbeTLS, "TLS": zone.ProbeTLS,
			"TCP": zone.ProbeTCP}[protocol]
		if port := (Port{kind, int(number)}); kind != "" && !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// endpoint claims what a DNSEndpoint lists.
func (c *collector) endpoint(o *unstructured.Unstructured) {
	entries, _, _ := unstructured.NestedSlice(o.Object, "spec", "endpoints")
	for _, entry := range entries {
		fields, _ := entry.(map[string]any)
		host, _ := fields["dnsName"].(string)
		kind, _ := fields["recordType"].(string)
		if !slices.Contains(zone.AddressTypes(), kind) {
			continue
		}
		found, _, _ := unstructured.NestedStringSlice(fields, "targets")
		claim := Claim{Object: object("DNSEndpoint", o), Targets: targets(o, found)}
		if ttl, ok, _ := unstructured.NestedInt64(fields, "recordTTL"); ok {
			claim.TTL = strconv.FormatInt(ttl, 10)
		}
		c.add([]string{host}, claim)
	}
}

// targets are the canonical addresses of an object; its annotation comes before what its status says.
func targets(meta metav1.Object, found []string) []string {
	if named := list(meta.GetAnnotations()[annotationTarget]); len(named) > 0 {
		found = named
	}
	var all []string
	for _, text := range found {
		if ip, err := netip.ParseAddr(text); err == nil {
			all = append(all, ip.Unmap().String())
		} else if name, err := zone.Canonical(text); err == nil {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// readiness says why a Service has no pod that serves. A Service without a selector, or that was not read, cannot
// be told: what answers at its address decides then.
func readiness(s *cluster.Snapshot) func(namespace, name string) string {
	selectors := map[string]map[string]string{}
	for i := range s.Services {
		selectors[s.Services[i].Namespace+"/"+s.Services[i].Name] = s.Services[i].Spec.Selector
	}
	podsRead, _ := s.Has("pods")
	servicesRead, _ := s.Has("services")
	byNamespace := map[string][]*corev1.Pod{}
	for i := range s.Pods {
		byNamespace[s.Pods[i].Namespace] = append(byNamespace[s.Pods[i].Namespace], &s.Pods[i])
	}
	return func(namespace, name string) string {
		selector, known := selectors[namespace+"/"+name]
		if !known && servicesRead {
			return "Service " + namespace + "/" + name + " does not exist"
		}
		if !known || !podsRead || len(selector) == 0 {
			return ""
		}
		for _, pod := range byNamespace[namespace] {
			if labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) && isReady(pod) {
				return ""
			}
		}
		return "no pod of Service " + namespace + "/" + name + " is Ready"
	}
}

func isReady(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil && cluster.PodReady(pod) }

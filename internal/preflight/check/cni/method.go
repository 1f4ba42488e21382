package cni

import (
	"net/netip"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// method is how calico-node finds the node's address (IP_AUTODETECTION_METHOD).
type method struct {
	text    string // as written; "first-found" if unset
	subject finding.Subject
}

// methodOf finds the method in the DaemonSet calico-node of a manifest, or in the Installation from which an operator
// renders that DaemonSet.
func methodOf(manifest []unstructured.Unstructured) (method, bool) {
	for i := range manifest {
		object := &manifest[i]
		if object.GetKind() == "Installation" && strings.HasPrefix(object.GetAPIVersion(), "operator.tigera.io/") {
			return ofInstallation(object), true
		}
		if object.GetKind() != "DaemonSet" || object.GetName() != "calico-node" {
			continue
		}
		m := method{text: "first-found",
			subject: finding.Subject{Kind: "DaemonSet", Namespace: object.GetNamespace(), Name: object.GetName()}}
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		for _, container := range containers {
			fields, _ := container.(map[string]any)
			variables, _, _ := unstructured.NestedSlice(fields, "env")
			for _, variable := range variables {
				pair, _ := variable.(map[string]any)
				if value, _ := pair["value"].(string); pair["name"] == "IP_AUTODETECTION_METHOD" && value != "" {
					m.text = value
				}
			}
		}
		return m, true
	}
	return method{}, false
}

// ofInstallation returns what the operator writes into the DaemonSet, in its order (getAutodetectionMethod in
// pkg/render/node.go of tigera/operator).
func ofInstallation(object *unstructured.Unstructured) method {
	m := method{text: "first-found", subject: finding.Subject{Kind: "Installation", Name: object.GetName()}}
	said, _, _ := unstructured.NestedMap(object.Object, "spec", "calicoNetwork", "nodeAddressAutodetectionV4")
	cidrs, _, _ := unstructured.NestedStringSlice(said, "cidrs")
	first, _ := said["firstFound"].(bool)
	text := func(field string) string { value, _ := said[field].(string); return value }
	switch {
	case text("interface") != "":
		m.text = "interface=" + text("interface")
	case text("skipInterface") != "":
		m.text = "skip-interface=" + text("skipInterface")
	case text("canReach") != "":
		m.text = "can-reach=" + text("canReach")
	case first:
	case len(cidrs) > 0:
		m.text = "cidr=" + strings.Join(cidrs, ",")
	case text("kubernetes") == "NodeInternalIP":
		m.text = "kubernetes-internal-ip"
	}
	return m
}

// excluded are the links that first-found ignores, as in Calico's source (node/pkg/lifecycle/startup/autodetection).
var excluded = regexp.MustCompile(
	`^(docker.*|cbr.*|dummy.*|virbr.*|lxcbr.*|veth.*|lo|cali.*|tunl.*|flannel.*|kube-ipvs.*|cni.*|vxlan.calico.*|vxlan-v6.calico.*|wireguard.cali.*|wg-v6.cali.*|nodelocaldns.*|podman.*)$`)

func (m method) split() (name, value string) {
	name, value, _ = strings.Cut(m.text, "=")
	return name, value
}

// severity is lower for the default, since Theseus replaces it by the node's internal address during the change.
func (m method) severity() finding.Severity {
	if m.text == "first-found" {
		return finding.Warn
	}
	return finding.Block
}

func (m method) byAddress() bool {
	name, _ := m.split()
	return name == "kubernetes-internal-ip" || name == "can-reach" || name == "cidr"
}

// check returns what is wrong with the method as written.
func (m method) check() error {
	_, value := m.split()
	if m.byAddress() || m.text == "first-found" {
		return nil
	}
	for _, expression := range strings.Split(value, ",") {
		if _, err := regexp.Compile(expression); err != nil {
			return err
		}
	}
	return nil
}

// takes reports whether a method that selects by name would select a link.
func (m method) takes(link string) bool {
	name, value := m.split()
	matches := func() bool {
		for _, expression := range strings.Split(value, ",") {
			if found, err := regexp.MatchString(expression, link); err == nil && found {
				return true
			}
		}
		return false
	}
	switch name {
	case "interface":
		return matches()
	case "skip-interface":
		return !excluded.MatchString(link) && !matches()
	default:
		return !excluded.MatchString(link)
	}
}

// among returns the first of some links, given by names and prefixes, that a method which selects by name would select.
func (m method) among(patterns []string) (string, bool) {
	for _, pattern := range patterns {
		name := strings.TrimSuffix(pattern, "*")
		if name != pattern {
			name += "0" // any link with that prefix
		}
		if !m.byAddress() && m.takes(name) {
			return name, true
		}
	}
	return "", false
}

// pick returns the link and the address that the method selects on a node; no link if it finds none.
// can-reach depends on routes, which facts do not contain: the node's own address is assumed.
func (m method) pick(links []cluster.Link, node *corev1.Node) (string, netip.Addr) {
	name, value := m.split()
	for _, link := range links {
		for _, prefix := range check.Prefixes(plain(link.Addresses)...) {
			address := prefix.Addr()
			if !address.Is4() || address.IsLoopback() || address.IsLinkLocalUnicast() {
				continue
			}
			taken := false
			switch name {
			case "kubernetes-internal-ip", "can-reach":
				taken = isInternal(node, address)
			case "cidr":
				taken = within(address, check.Prefixes(strings.Split(value, ",")...))
			default:
				taken = m.takes(link.Name)
			}
			if taken {
				return link.Name, address
			}
		}
	}
	return "", netip.Addr{}
}

// plain drops the prefix lengths.
func plain(addresses []string) []string {
	texts := make([]string, len(addresses))
	for i, address := range addresses {
		texts[i], _, _ = strings.Cut(address, "/")
	}
	return texts
}

func within(address netip.Addr, ranges []netip.Prefix) bool {
	for _, r := range ranges {
		if r.Contains(address) {
			return true
		}
	}
	return false
}

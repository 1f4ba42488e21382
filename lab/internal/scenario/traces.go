package scenario

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/lab/internal/spec"
	"github.com/theseus-cni/theseus/lab/internal/workload"
)

// tracesScript prints, on a node, a line for each possible trace of a network.
//
//go:embed traces.sh
var tracesScript string

// Traces are all possible traces of a network on a node and on its Node object: sorted lines, each of which begins with
// its kind (link, route4, iptables-nft, file, ...). The list does not depend on any particular network. Differences
// between two equal nodes of one cluster, such as addresses and the traces of pods, are removed.
func (r *Rig) Traces(ctx context.Context, node string) ([]string, error) {
	lab, err := r.Spec(ctx)
	if err != nil {
		return nil, err
	}
	out, err := r.OnNode(ctx, node, "sh", "-c", tracesScript)
	if err != nil {
		return nil, fmt.Errorf("read the traces on %s: %w", node, err)
	}
	var all []string
	for line := range strings.Lines(out) {
		if line = alike(lab, strings.TrimSpace(line)); line != "" {
			all = append(all, line)
		}
	}
	// every node has some
	for _, kind := range []string{"link", "rule4", "route4", "iptables-nft", "sysctl", "file", "mount", "process"} {
		if !slices.ContainsFunc(all, func(line string) bool { return strings.HasPrefix(line, kind+" ") }) {
			return nil, fmt.Errorf("read the traces on %s: no %s was found", node, kind)
		}
	}
	text, err := r.Kubectl(ctx, nil, "get", "node", node, "-o", "json")
	if err != nil {
		return nil, err
	}
	marks, err := marksOf([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node, err)
	}
	all = append(all, marks...)
	slices.Sort(all)
	return slices.Compact(all), nil
}

// marksOf are a Node's labels, annotations, taints and conditions.
func marksOf(object []byte) ([]string, error) {
	var node struct {
		Metadata struct{ Labels, Annotations map[string]string }
		Spec     struct {
			Taints []struct{ Key, Value, Effect string }
		}
		Status struct {
			Conditions []struct{ Type, Status, Reason string }
		}
	}
	if err := json.Unmarshal(object, &node); err != nil {
		return nil, err
	}
	var all []string
	for key := range node.Metadata.Labels {
		all = append(all, "label "+key)
	}
	for key := range node.Metadata.Annotations {
		all = append(all, "annotation "+key)
	}
	for _, t := range node.Spec.Taints {
		all = append(all, fmt.Sprintf("taint %s=%s:%s", t.Key, t.Value, t.Effect))
	}
	for _, c := range node.Status.Conditions {
		all = append(all, fmt.Sprintf("condition %s=%s %s", c.Type, c.Status, c.Reason))
	}
	return all, nil
}

var (
	// counted are values that are not settings, and settings of temporary links, or of a pod's link.
	counted = regexp.MustCompile(
		`^sysctl net/(netfilter/nf_conntrack_count|ipv4/tcp_fastopen_key|.*stable_secret|ipv[46]/(conf|neigh)/(cali|veth|vxlan))`)
	// passing are traces of the present pods and nodes: of the runtime, the kubelet and Calico, and the pods'
	// processes.
	passing = regexp.MustCompile(
		`^(mount|file) /(run/netns/|var/lib/kubelet/pods|run/containerd/|var/lib/containerd|run/calico/endpoint-status/k8s )` +
			`|^route4 \S+ dev vxlan\.calico scope link` + // to the tunnel of another node
			`|^file ` + workload.RecordDir + `$|^process (coredns|workload|pause|kube-controller|wrapper)$`)
	// idle are the kernel's own chains, and the tables that hold them, which do nothing without rules in them.
	idle = regexp.MustCompile(
		`^ip6?tables-\w+ \w+ chain (PREROUTING|INPUT|FORWARD|OUTPUT|POSTROUTING) ACCEPT$|^nft table ip6? (raw|mangle|nat|filter|security)$`)
	// ruled are lines of chains that belong to one agent, by the prefix of their names.
	ruled = regexp.MustCompile(`^(\S+ \w+) (?:-A|chain) (cali-|KUBE-SVC-|KUBE-SEP-|KUBE-EXT-|KUBE-SVL-|KUBE-FW-)`)

	number  = regexp.MustCompile(`[0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	podLink = regexp.MustCompile(`\b(cali|veth)[0-9a-f]{8,11}\b`)
	set     = regexp.MustCompile(`\bcali(40|60)[\w:.-]+`)
	address = regexp.MustCompile(`\b\d{1,3}(\.\d{1,3}){3}\b`)
	six     = regexp.MustCompile(`\b[0-9a-f]{1,4}(:[0-9a-f]{0,4}){2,7}\b`)
)

// alike is a line without the differences between nodes of one cluster; empty if nothing remains.
func alike(lab spec.Lab, line string) string {
	if counted.MatchString(line) || passing.MatchString(line) || idle.MatchString(line) {
		return ""
	}
	if in := ruled.FindStringSubmatch(line); in != nil {
		return in[1] + " " + in[2] + "*"
	}
	// the name has no special characters
	line = regexp.MustCompile(`\b`+lab.Name+`-node-\d+\b`).ReplaceAllString(line, "NODE")
	line = number.ReplaceAllString(line, "NUMBER")
	line = podLink.ReplaceAllString(line, "$1*")
	line = set.ReplaceAllString(line, "cali$1*")
	line = six.ReplaceAllString(line, "SIX")
	return address.ReplaceAllStringFunc(line, func(text string) string {
		at, err := netip.ParseAddr(text)
		switch {
		case err != nil:
			return text
		case lab.PodCIDR().Contains(at):
			return "POD"
		case lab.NewPodCIDR().Contains(at):
			return "NEW-POD"
		case at.Compare(lab.NodeIP(1)) >= 0 && at.Compare(lab.NodeIP(spec.MaxNodes)) <= 0:
			return "NODE"
		}
		return text
	})
}

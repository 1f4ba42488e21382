package rigtest

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// FlannelTraces, CalicoTraces and HeldTraces are scripts for NothingOn: they find the residue of flannel and its policy
// agent on a node, that of Calico, and the routes that Theseus retains for a time. They ignore rules for
// theseus-system, where the journal stays: these belong to the source's policy agent, or to kube-proxy, which has not
// removed them yet.
const (
	FlannelTraces = `ip -o link show | grep -E 'flannel|cni0'; iptables-save | grep -v theseus-system/ | grep -E 'FLANNEL|KUBE-ROUTER|theseus';
		ls /etc/cni/net.d | grep -E 'flannel|theseus'; ls -d /run/flannel 2>/dev/null; ip route | grep -E 'flannel|cni0'; true`
	CalicoTraces = `ip -o link show | grep -E 'cali|vxlan.calico'; iptables-save | grep -vE 'theseus-system["/]' | grep -E 'cali-|theseus';
		nft list tables | grep -E 'calico|theseus'; ` + HeldTraces + `; ip route show table all | grep blackhole;
		ls /etc/cni/net.d | grep -E 'calico|theseus'; ls -d /var/lib/calico/* /run/calico 2>/dev/null; ls /opt/cni/bin | grep calico; ipset list -n | grep -E 'cali|theseus'; true`
	HeldTraces = `ip rule | grep -E '^9[0-9]:'; ip route show table all | grep -E 'table (251|252|90090)'; true`
)

// NothingOn demands that a script prints nothing on any of the lab's nodes; what names the output in errors.
func NothingOn(t *testing.T, rig *scenario.Rig, what, script string) {
	t.Helper()
	for _, node := range rig.NodeNames() {
		out, err := rig.OnNode(t.Context(), node, "sh", "-c", script)
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(out) != "" {
			t.Errorf("%s is left on %s:\n%s", what, node, out)
		}
	}
}

// settled bounds the wait until nodes are alike, and until the cluster's garbage is collected: agents write some of
// their rules a while after pods have started. Nodes are read at least this many times, as two are never read at one
// moment: transient differences disappear.
const (
	settled = time.Minute
	looks   = 5
)

// first is a user's pod on the new node, as every other node has one.
const first = `apiVersion: v1
kind: Pod
metadata: {name: first, namespace: default}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "theseus.dev/workload:lab", args: [serve, "--http=:8080", "--grace=0s"]}]
`

// Stays is a difference that a network leaves on nodes, and why that is right.
type Stays struct {
	Line *regexp.Regexp // as Rig.Traces has it, after "+ " (left) or "- " (lacking)
	Why  string
	// Sometimes is true if the difference need not exist.
	Sometimes bool
}

// OfCalico is Calico's residue on nodes.
var OfCalico = []Stays{
	{Line: regexp.MustCompile(`^\+ file /opt/cni/bin/tuning$`),
		Why: "Calico's installer brings a common plugin, which others may use by now"},
	{Line: regexp.MustCompile(`^[+-] sysctl net/netfilter/nf_conntrack_acct:`),
		Why: "Calico's agent enables connection accounting, which others may use too"},
}

// BackOnFlannel is the residue of Calico after a change from flannel was rolled back, and differences between nodes
// with different pods.
var BackOnFlannel = append(slices.Clone(OfCalico),
	Stays{Line: regexp.MustCompile(
		`^(\+ condition NetworkUnavailable=False CalicoIsUp|- condition NetworkUnavailable=False FlannelIsUp)$`),
		Why: "flannel's agent sets this condition as it starts, and Calico's set it last; either allows pods"},
	Stays{Line: regexp.MustCompile(`^[+-] (iptables-nft filter .*\bKUBE-(POD-FW|NWPLCY)-\w)`),
		Why: "kube-router has rules for the pods of its node"},
	Stays{Line: regexp.MustCompile(
		`^\+ iptables-nft filter -A KUBE-(EXTERNAL-)?SERVICES .*"theseus-system/theseus-probe-(old|new)(-port)?:(tcp|udp)(-second)? has no endpoints"`),
		Why: "kube-proxy rejects traffic to Theseus' deleted Services until its next sync", Sometimes: true},
)

// Perhaps returns the same differences, none of which need exist: for changes that did not reach every node.
func Perhaps(stays []Stays) []Stays {
	stays = slices.Clone(stays)
	for i := range stays {
		stays[i].Sometimes = true
	}
	return stays
}

// always stays after every change.
var always = Stays{Line: regexp.MustCompile(
	`^\+ file /run/theseus(/probe(/(old|new|host)(/paths\.json|/out(/results\.json)?)?)?)?$`),
	Why: "state of Theseus' agent and its probers, on tmpfs: it survives a restart of the agent, which " +
		"continues, but not a reboot"}

// NothingLeft demands that the nodes of a cluster whose network was replaced are like a node that never had the old
// network: a new one. Lines that only the old nodes have are residue, and lines that only the new one has were removed
// wrongly, except for those in stays. No object of the cluster may have a name with one of the old network's words in
// it.
func NothingLeft(t *testing.T, rig *scenario.Rig, words *regexp.Regexp, stays ...Stays) {
	t.Helper()
	old, stays := rig.NodeNames(), append(stays, always)
	added, err := rig.InLab(t.Context(), "node", "add", "--bare")
	if err != nil {
		t.Fatal(err)
	}
	fresh := strings.TrimSpace(added)
	for _, args := range [][]string{{"apply", "-f", "-"},
		{"-n", "default", "wait", "--for=condition=Ready", "pod/first", "--timeout=120s"}} {
		if _, err := rig.Kubectl(t.Context(), strings.NewReader(fmt.Sprintf(first, fresh)), args...); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range old {
		used := map[int]bool{}
		var diff []string
		err := settle(func() (bool, error) {
			var err error
			diff, err = unlike(t.Context(), rig, node, fresh)
			return !slices.ContainsFunc(diff, func(line string) bool { return staying(line, stays) < 0 }), err
		})
		if err != nil {
			t.Error(err)
		}
		for _, line := range diff {
			if i := staying(line, stays); i >= 0 {
				used[i] = true
			} else {
				t.Errorf("%s differs from %s, a new node: %s", node, fresh, line)
			}
		}
		for i, one := range stays {
			if !used[i] && !one.Sometimes {
				t.Errorf("%s has no difference %s any more, which should stay: %s", node, one.Line, one.Why)
			}
		}
	}
	var named []string
	err = settle(func() (bool, error) {
		var err error
		named, err = naming(t.Context(), rig, words)
		return len(named) == 0, err
	})
	if err != nil {
		t.Error(err)
	}
	for _, object := range named {
		t.Errorf("%s is left in the cluster", object)
	}
}

// settle retries a check until it succeeds or the time is over, and returns the last error.
func settle(look func() (bool, error)) error {
	deadline := time.Now().Add(settled)
	for n := 1; ; n++ {
		fine, err := look()
		if err == nil && fine || n >= looks && time.Now().After(deadline) {
			return err
		}
		time.Sleep(time.Second)
	}
}

// staying is the index of the entry that a line matches; -1 if none.
func staying(line string, stays []Stays) int {
	return slices.IndexFunc(stays, func(s Stays) bool { return s.Line.MatchString(line) })
}

// unlike lists the lines that only one node has, after +, and those that only the other has, after -.
func unlike(ctx context.Context, rig *scenario.Rig, node, other string) ([]string, error) {
	var traces [2][]string
	for i, name := range []string{node, other} {
		var err error
		if traces[i], err = rig.Traces(ctx, name); err != nil {
			return nil, err
		}
	}
	var diff []string
	for i, sign := range []string{"+ ", "- "} {
		for _, line := range traces[i] {
			if _, both := slices.BinarySearch(traces[1-i], line); !both {
				diff = append(diff, sign+line)
			}
		}
	}
	return diff, nil
}

// naming are the objects of all kinds, except events and Theseus' journal, with one of the words in their names.
func naming(ctx context.Context, rig *scenario.Rig, words *regexp.Regexp) ([]string, error) {
	kinds, err := rig.Kubectl(ctx, nil, "api-resources", "--verbs=list", "-o", "name")
	if err != nil {
		return nil, err
	}
	var wanted []string
	for _, kind := range strings.Fields(kinds) {
		if !strings.HasPrefix(kind, "events") {
			wanted = append(wanted, kind)
		}
	}
	text, err := rig.Kubectl(ctx, nil, "get", strings.Join(wanted, ","), "--all-namespaces", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct{ Namespace, Name string }
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	if len(list.Items) < 50 {
		return nil, fmt.Errorf("only %d objects of the cluster were listed", len(list.Items))
	}
	var named []string
	journal := []string{"Migration", "PlanPage", "JournalPage"}
	for _, item := range list.Items {
		if item.Kind == "ConfigMap" && strings.HasPrefix(item.Metadata.Name, "theseus-evidence-") {
			continue // what the run measured, which stays with its journal
		}
		if name := item.Metadata.Namespace + "/" + item.Metadata.Name; words.MatchString(name) &&
			!slices.Contains(journal, item.Kind) {
			named = append(named, item.Kind+" "+name)
		}
	}
	return named, nil
}

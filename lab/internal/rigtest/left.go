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

// FlannelTraces, CalicoTraces and HeldTraces are scripts for NothingOn: they find what flannel and its policy agent leave on a node, what Calico does,
// and the routes that Theseus keeps for a time. Rules for theseus-system, where the journal stays, are the source's policy agent's, and those of its
// Services that kube-proxy has not taken back yet are nobody else's.
const (
	FlannelTraces = `ip -o link show | grep -E 'flannel|cni0'; iptables-save | grep -v theseus-system/ | grep -E 'FLANNEL|KUBE-ROUTER|theseus';
		ls /etc/cni/net.d | grep -E 'flannel|theseus'; ls -d /run/flannel 2>/dev/null; ip route | grep -E 'flannel|cni0'; true`
	CalicoTraces = `ip -o link show | grep -E 'cali|vxlan.calico'; iptables-save | grep -vE 'theseus-system["/]' | grep -E 'cali-|theseus';
		nft list tables | grep -E 'calico|theseus'; ` + HeldTraces + `; ip route show table all | grep blackhole;
		ls /etc/cni/net.d | grep -E 'calico|theseus'; ls -d /var/lib/calico/* /run/calico 2>/dev/null; ls /opt/cni/bin | grep calico; ipset list -n | grep -E 'cali|theseus'; true`
	HeldTraces = `ip rule | grep -E '^9[0-9]:'; ip route show table all | grep -E 'table (251|252|90090)'; true`
)

// NothingOn demands that a script prints nothing on any of the lab's nodes; what is the subject of what it prints.
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

// settled bounds the wait until nodes are alike, and until the garbage of the cluster is collected: agents write some of their rules a while
// after pods came. Nodes are looked at that often at least, as two are never seen at one moment: what passes is not there each time.
const (
	settled = time.Minute
	looks   = 5
)

// first is a pod as there is one of somebody's on every node.
const first = `apiVersion: v1
kind: Pod
metadata: {name: first, namespace: default}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "theseus.dev/workload:lab", args: [serve, "--http=:8080", "--grace=0s"]}]
`

// Stays is a thing that a network leaves, or takes away, and why that is right.
type Stays struct {
	Line *regexp.Regexp // as Rig.Traces has it, after "+ " (left) or "- " (lacking)
	Why  string
	// Sometimes says that it need not be there.
	Sometimes bool
}

// OfCalico is what Calico leaves on nodes where it was.
var OfCalico = []Stays{
	{Line: regexp.MustCompile(`^\+ file /opt/cni/bin/tuning$`), Why: "Calico's installer brings a plugin of everybody's, which others may use by now"},
	{Line: regexp.MustCompile(`^[+-] sysctl net/netfilter/nf_conntrack_acct:`), Why: "Calico's agent counts connections, and nobody knows who does besides"},
}

// BackOnFlannel is what stays of Calico where a change to it from flannel was taken back, and in what nodes with other pods differ anyway.
var BackOnFlannel = append(slices.Clone(OfCalico),
	Stays{Line: regexp.MustCompile(`^(\+ condition NetworkUnavailable=False CalicoIsUp|- condition NetworkUnavailable=False FlannelIsUp)$`),
		Why: "flannel's agent says that it is up as it starts, and Calico's said so last: whoever said it, pods may come"},
	Stays{Line: regexp.MustCompile(`^[+-] (iptables-nft filter .*\bKUBE-(POD-FW|NWPLCY)-\w)`), Why: "kube-router has rules for the pods of its node"},
	Stays{Line: regexp.MustCompile(`^\+ iptables-nft filter -A KUBE-(EXTERNAL-)?SERVICES .*"theseus-system/theseus-probe-(old|new)(-port)?:(tcp|udp)(-second)? has no endpoints"`),
		Why: "kube-proxy refuses what goes to Theseus' Services, which are gone, until it looks again", Sometimes: true},
)

// always stays after any change.
var always = Stays{Line: regexp.MustCompile(`^\+ file /run/theseus(/probe(/(old|new|host)(/paths\.json|/out(/results\.json)?)?)?)?$`),
	Why: "what Theseus' agent and its probes knew, in memory: it outlives the agent, so that one that starts again goes on, and not the node's next start"}

// NothingLeft demands that the nodes of a cluster whose network was replaced are as one that never had the old one: a node that comes now.
// What they have and it has not is left over, and what it has and they have not was taken away; but for what stays. No object of the cluster
// may have a name with one of the old network's words in it.
func NothingLeft(t *testing.T, rig *scenario.Rig, words *regexp.Regexp, stays ...Stays) {
	t.Helper()
	old, stays := rig.NodeNames(), append(stays, always)
	added, err := rig.InLab(t.Context(), "node", "add", "--bare")
	if err != nil {
		t.Fatal(err)
	}
	fresh := strings.TrimSpace(added)
	for _, args := range [][]string{{"apply", "-f", "-"}, {"-n", "default", "wait", "--for=condition=Ready", "pod/first", "--timeout=120s"}} {
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
				t.Errorf("%s is not as %s, which came later: %s", node, fresh, line)
			}
		}
		for i, one := range stays {
			if !used[i] && !one.Sometimes {
				t.Errorf("on %s nothing is as %s any more, which stayed: %s", node, one.Line, one.Why)
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

// settle looks again and again, until all is as it is to be or the time is over; the error is the last look's.
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

// staying is the number of what a line is one of; -1 where it is none.
func staying(line string, stays []Stays) int {
	return slices.IndexFunc(stays, func(s Stays) bool { return s.Line.MatchString(line) })
}

// unlike is what one node has and another has not, after +, and the other way round, after -.
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

// naming are the objects of all kinds, but for events and Theseus' journal, that have one of the words in their names.
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
		return nil, fmt.Errorf("of the cluster only %d objects were seen", len(list.Items))
	}
	var named []string
	journal := []string{"Migration", "PlanPage", "JournalPage"}
	for _, item := range list.Items {
		if name := item.Metadata.Namespace + "/" + item.Metadata.Name; words.MatchString(name) && !slices.Contains(journal, item.Kind) {
			named = append(named, item.Kind+" "+name)
		}
	}
	return named, nil
}

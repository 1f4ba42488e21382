package guard

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/workload/drive"
	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

const (
	// every is the time between two datagrams of a client.
	every = 20 * time.Millisecond
	// fastest and medium are the intervals of the paths that are compared with clients.
	fastest, medium = 60 * time.Millisecond, 300 * time.Millisecond
	// slow is that of new connections, and clients say nothing about a shorter gap of theirs.
	slow = 600 * time.Millisecond
	// records is the folder of a node with what clients counted.
	records = "/var/lib/theseus-clients"
)

// pair is a client on one node that sends to a server on another, and the guard's path between the same ends.
type pair struct {
	from, to string // nodes
	end      string // of the server: old, a pod; host, the node's own network; service, a Service of all pods
}

// path is the id of the guard's path, and the time between two of its probes.
func (p pair) path() (id string, interval time.Duration) {
	switch p.end {
	case "host":
		return p.from + "/old>" + p.to + "/host/udp", medium
	case "service":
		return p.from + "/old>service/old/tcp-new", slow
	}
	return p.from + "/old>" + p.to + "/old/udp", fastest
}

func (p pair) client(stage string) string { return stage + "-" + p.from + "-" + p.end }

// clients are programs of the lab that know nothing of Theseus: a server in a pod and one on the network of each of the
// nodes, and between each two of the nodes a client of all of these. Each client counts on its own.
type clients struct {
	rig   *scenario.Rig
	stage string
	pairs []pair
}

const (
	serverPod = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s-%[2]s-%[3]s, namespace: default, labels: {apart: %[1]s, end: %[1]s-%[2]s}}
spec:
  nodeName: %[3]s
  hostNetwork: %[4]t
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  containers:
    - {name: serve, image: "theseus.dev/workload:lab", imagePullPolicy: IfNotPresent,
       args: [serve, "--udp=:18082", "--health=:18083", "--grace=0s"], resources: {requests: {cpu: 20m}},
       readinessProbe: {httpGet: {path: /ready, port: 18083}, periodSeconds: 1}}
---`
	serverService = `
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default, labels: {apart: %[1]s}}
spec: {selector: {end: %[1]s-old}, ports: [{port: 18082, protocol: UDP}]}
---`
	clientPod = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s-client-%[2]s, namespace: default, labels: {apart: %[1]s}}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  volumes: [{name: record, hostPath: {path: ` + records + `, type: DirectoryOrCreate}}]
  containers:`
	clientContainer = `
    - {name: %[1]s, image: "theseus.dev/workload:lab", imagePullPolicy: IfNotPresent,
       args: [drive, "--peer=%[2]s:18082", "--rate=%[3]d", "--listen=:%[4]d"], resources: {requests: {cpu: 20m}},
       env: [{name: POD_NAME, value: "%[5]s"}], volumeMounts: [{name: record, mountPath: /record}],
       readinessProbe: {httpGet: {path: /ready, port: %[4]d}, periodSeconds: 1}}`
)

// newClients starts clients of a stage, and waits until they are answered.
func newClients(t *testing.T, rig *scenario.Rig, stage string) *clients {
	t.Helper()
	c := &clients{rig: rig, stage: stage}
	nodes := rig.NodeNames()
	text := fmt.Sprintf(serverService, stage)
	for _, node := range nodes {
		text += fmt.Sprintf(serverPod, stage, "old", node, false) + fmt.Sprintf(serverPod, stage, "host", node, true)
	}
	c.start(t, text)
	for i, from := range nodes {
		to := nodes[(i+1)%len(nodes)]
		text := fmt.Sprintf(clientPod, stage, from)
		for n, end := range []string{"old", "host", "service"} {
			address := kubectl(t, rig, "get", "service", stage, "-o", "jsonpath={.spec.clusterIP}")
			if end != "service" {
				address = kubectl(t, rig, "get", "pod", stage+"-"+end+"-"+to, "-o", "jsonpath={.status.podIP}")
			}
			one := pair{from, to, end}
			text += fmt.Sprintf(clientContainer, end, address, time.Second/every, 18090+n, one.client(stage))
			c.pairs = append(c.pairs, one)
		}
		c.start(t, text)
	}
	return c
}

// start applies pods, and waits until they are Ready.
func (c *clients) start(t *testing.T, manifest string) {
	t.Helper()
	if _, err := c.rig.Kubectl(t.Context(), strings.NewReader(manifest), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	kubectl(t, c.rig, "wait", "--for=condition=Ready", "pods", "-l", "apart="+c.stage, "--timeout=90s")
}

// end removes the clients.
func (c *clients) end(t *testing.T) {
	t.Helper()
	kubectl(t, c.rig, "delete", "pods,services", "-l", "apart="+c.stage, "--force", "--grace-period=0", "--wait=false")
}

// count is what the client of a pair has counted.
func (c *clients) count(t *testing.T, p pair) tally.Count {
	t.Helper()
	text, err := c.rig.OnNode(t.Context(), p.from, "cat", records+"/"+p.client(c.stage)+".json")
	if err != nil {
		t.Fatal(err)
	}
	var got tally.Summary
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if got.Kinds[drive.KindPeer].Sent == 0 {
		t.Fatalf("%s sent nothing", p.client(c.stage))
	}
	if got.Stalls.Longest > 50 {
		t.Logf("%s did not run for up to %.0f ms", p.client(c.stage), got.Stalls.Longest)
	}
	return got.Kinds[drive.KindPeer]
}

// gap of a report.
type gap struct {
	Path   string
	From   time.Time
	Millis float64
	Probes int64
	Open   bool
}

func (g gap) to() time.Time { return g.From.Add(time.Duration(g.Millis * float64(time.Millisecond))) }

// report is what these tests read of a guard's report.
type report struct {
	Totals  struct{ Sent, Lost int64 }
	Gaps    []gap
	Moments []struct {
		At         time.Time
		Kind, Text string
	}
}

// longest is the longest gap of a path; the zero gap if it has none.
func (r report) longest(id string) (longest gap) {
	for _, one := range r.Gaps {
		if one.Path == id && one.Millis > longest.Millis {
			longest = one
		}
	}
	return longest
}

// says demands that an event of the report's list has these words, and returns when it happened.
func (r report) says(t *testing.T, words string) (at time.Time) {
	t.Helper()
	i := slices.IndexFunc(r.Moments, func(m struct {
		At         time.Time
		Kind, Text string
	}) bool {
		return m.Kind == "event" && strings.Contains(m.Text, words)
	})
	if i < 0 {
		t.Errorf("no event is %q: %+v", words, r.Moments)
		return at
	}
	return r.Moments[i].At
}

// guarded runs a command under a guard next to clients, and demands one of two exit codes: good, or a proven loss. A
// shell runs the command: kubectl and node (theseus-lab's) act on the lab.
func (c *clients) guarded(t *testing.T, command string, codes ...int) (report, int) {
	t.Helper()
	file := filepath.Join(c.rig.Dir, c.stage+".json")
	script := fmt.Sprintf("set -e; lab='%s'; kubectl() { \"$lab\" kubectl --name %s \"$@\"; }; "+
		"node() { verb=$1; shift; \"$lab\" node $verb --name %s \"$@\"; }\n%s",
		c.rig.Lab, c.rig.Name, c.rig.Name, command)
	p := rigtest.Start(t, c.rig, "here", "guard", "--agent-image", scenario.AgentImage, "--probe-interval",
		fastest.String(), "--max-lost", "3", "--baseline", "5s", "--quiet", "6s", "--watch-at-most", "1m", "-o", file,
		"--", "sh", "-c", script)
	code := p.Code()
	if !slices.Contains(codes, code) {
		t.Fatalf("exit %d, want one of %d:\n%s", code, codes, p.Said())
	}
	nothingLeft(t, c.rig)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Totals.Sent == 0 || code == 0 && got.Totals.Lost > 3 || code == 7 && got.Totals.Lost == 0 {
		t.Errorf("exit %d, and %d of %d probes were lost", code, got.Totals.Lost, got.Totals.Sent)
	}
	return got, code
}

// agree demands that a guard's paths and the clients between the same ends had the same longest gap: each end of it is
// seen one interval too late at most, by either. It returns how many requests these clients lost. Without ends, all
// are compared: of a Service, either side may ask another of its pods while only one does not answer.
func (c *clients) agree(t *testing.T, got report, ends ...string) (failed uint64) {
	t.Helper()
	for _, p := range c.pairs {
		if len(ends) > 0 && !slices.Contains(ends, p.end) {
			continue
		}
		id, interval := p.path()
		within := float64((interval + every).Milliseconds())
		count, gap := c.count(t, p), got.longest(id)
		failed += count.Failed
		t.Logf("%s: the guard's longest gap is %.0f ms from %s (open: %t), the client's %.0f ms from %s, "+
			"%d of %d failed", id, gap.Millis, clock(gap.From), gap.Open, count.LongestGap,
			clock(count.LongestGapAt), count.Failed, count.Sent)
		differ := math.Abs(gap.Millis - count.LongestGap)
		if gap.Open { // the client has counted on, after the report
			differ = max(0, gap.Millis-count.LongestGap)
		}
		if differ > within {
			t.Errorf("%s: gaps of %.0f and %.0f ms differ by more than %.0f ms", id, gap.Millis,
				count.LongestGap, within)
		}
		if gap.Millis > within && count.LongestGap > within {
			c.begins(t, p, gap, count)
		}
	}
	return failed
}

// begins demands that a guard's gap and a client's begin at the same time.
func (c *clients) begins(t *testing.T, p pair, gap gap, count tally.Count) {
	t.Helper()
	id, interval := p.path()
	if between := gap.From.Sub(count.LongestGapAt).Abs(); between > interval+every {
		t.Errorf("%s: the gap begins at %s, and the client's at %s", id, clock(gap.From), clock(count.LongestGapAt))
	}
}

func clock(at time.Time) string { return at.UTC().Format("15:04:05.000") }

// kubectl must succeed, and returns what it printed.
func kubectl(t *testing.T, rig *scenario.Rig, args ...string) string {
	t.Helper()
	out, err := rig.Kubectl(t.Context(), nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

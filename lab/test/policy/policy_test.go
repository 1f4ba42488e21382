// Package policy compares what Theseus says of policies with what a real Calico lets through: every connection between
// six pods, and from a pod on the nodes' network to them, under each of some forty sets of policies.
package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/workload/knock"
)

const bin = "../../../bin"

const (
	// fences is the first of the ports by which a scene is known to be in force: one for each scene, of as many for
	// each kind of policy.
	fences = 9000
	apart  = 150
	// hostPort is where the pod on a node's network answers.
	hostPort = 19099
)

var (
	tcp = []int{80, 81, 82, 83, 84}
	udp = []int{80, 81}
)

// namespace has two service accounts.
const namespace = `---
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {team: %[1]s, %[2]s}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: front, namespace: %[1]s, labels: {role: front}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: back, namespace: %[1]s, labels: {role: back}}
`

// pod is one of the pods: namespace/name is what it is called.
const pod = `---
apiVersion: v1
kind: Pod
metadata: {name: %[2]s, namespace: %[1]s, labels: {pod: %[2]s, team: %[1]s}}
spec:
  serviceAccountName: %[8]s
  automountServiceAccountToken: false
  nodeName: %[3]s
  hostNetwork: %[4]t
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: theseus.dev/workload:lab
    args: [open, "--tcp=%[5]s", "--udp=%[6]s"]
    ports: [%[7]s]
`

const ports = "{name: web, containerPort: %d}, {name: dns, containerPort: 81, protocol: UDP}"

// world is the cluster with its pods.
type world struct {
	*scenario.Rig
	t         *testing.T
	network   string
	verdicts  string // the program
	workload  string // the program, for the ends outside of the cluster
	snapshot  string // file
	accounts  string // file with the service accounts, which a snapshot has not
	pods      []string
	addresses map[string]string
}

// question is one connection.
type question struct {
	From     string `json:"from"`
	To       string `json:"to"`
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
}

func TestVerdicts(t *testing.T) {
	rigtest.Full(t, "verdicts on policies against what a real Calico lets through")
	w := start(t, "judge", "calico", built(t, "../../..", "./test/verdicts"))
	w.look()
	wrong, total, undecided := 0, 0, 0
	var before []string
	questions := w.questions()
	all := scenes(func(name string) string { return w.addresses[name] })
	// of every scene, before the first is played: one that cannot be read fails at once
	said := make([][]string, len(all))
	for n, s := range all {
		said[n] = w.ask(questions, s.documents)
	}
	for n, s := range all {
		answers := said[n]
		w.play(n, before, s.documents)
		before = s.documents
		seen := w.measure(questions)
		allowed := 0
		for i, q := range questions {
			total++
			if seen[i] {
				allowed++
			}
			if answers[i] == "depends" {
				undecided++
			} else if (answers[i] == "allow") != seen[i] {
				wrong++
				t.Errorf("%s: %s to %s, %s %d: Theseus says %s, and it was let through: %t",
					s.name, q.From, q.To, q.Protocol, q.Port, answers[i], seen[i])
			}
		}
		fmt.Fprintf(w.Out, "%-45s %3d of %d connections let through\n", s.name, allowed, len(questions))
	}
	fmt.Fprintf(w.Out, "%d connections tried, %d differences, %d of which Theseus says that it depends\n",
		total, wrong, undecided)
	if undecided > total/50 {
		t.Errorf("of %d connections it says that it depends: that proves nothing", undecided)
	}
}

// built builds a program, and returns its path.
func built(t *testing.T, module, program string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(program))
	build := exec.Command("go", "build", "-o", out, program)
	build.Dir, build.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return out
}

// start starts a lab with the pods.
func start(t *testing.T, name, network, verdicts string) *world {
	t.Helper()
	w := &world{Rig: rigtest.New(t, bin, name, 2, network), t: t, network: network, verdicts: verdicts,
		addresses: map[string]string{}}
	w.deploy()
	return w
}

func (w *world) kubectl(stdin string, args ...string) string {
	w.t.Helper()
	out, err := w.Kubectl(w.t.Context(), strings.NewReader(stdin), args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// deploy starts three pods in each of two namespaces, one on a node's network, and those that tell when policies are in
// force: one on each node, and a client.
func (w *world) deploy() {
	nodes := w.NodeNames()
	list := func(numbers []int) string {
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]")
	}
	var manifest strings.Builder
	for name, label := range map[string]string{"x": "env: prod", "z": "zone: far", "fence": "env: none"} {
		fmt.Fprintf(&manifest, namespace, name, label)
	}
	for i, name := range []string{"x/a", "x/b", "x/c", "z/a", "z/b", "z/c"} {
		namespace, own, _ := strings.Cut(name, "/")
		named, account := fmt.Sprintf(ports, 80), "back"
		switch own {
		case "a":
			named, account = named+", {name: special, containerPort: 83}", "front"
		case "c": // the same name means another number here
			named = fmt.Sprintf(ports, 82)
		}
		fmt.Fprintf(&manifest, pod, namespace, own, nodes[i%2], false, list(tcp), list(udp), named, account)
		w.pods = append(w.pods, name)
	}
	fmt.Fprintf(&manifest, pod, "x", "host", nodes[0], true, fmt.Sprint(hostPort), "", "", "back")
	// Without the label pod, no set selects those of the fences: it could close what they open.
	pod := strings.Replace(pod, "labels: {pod: ", "labels: {fence: ", 1)
	for i, node := range nodes {
		fmt.Fprintf(&manifest, pod, "fence", fmt.Sprintf("post-%d", i), node, false,
			fmt.Sprintf("%d-%d", fences, fences+3*apart), "", "", "back")
	}
	fmt.Fprintf(&manifest, pod, "fence", "client", nodes[0], false, "1", "", "", "back")
	w.kubectl(manifest.String(), "apply", "-f", "-")
	w.kubectl("", "wait", "--for=condition=Ready", "pod", "--all", "-A", "--timeout=120s")
	for _, line := range strings.Fields(w.kubectl("", "get", "pods", "-A", "-o",
		`jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}={.status.podIP}{"\n"}{end}`)) {
		name, address, _ := strings.Cut(line, "=")
		w.addresses[name] = address
	}
}

// look takes the snapshot on which Theseus decides.
func (w *world) look() {
	w.t.Helper()
	w.snapshot = filepath.Join(w.Dir, "verdicts.json")
	if _, err := w.Run(w.t.Context(), "snapshot", "-o", w.snapshot); err != nil {
		w.t.Fatal(err)
	}
	w.accounts = filepath.Join(w.Dir, "accounts.yaml")
	text := w.kubectl("", "get", "serviceaccounts", "-A", "-o", "yaml")
	if err := os.WriteFile(w.accounts, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// questions are all connections between the pods, and from the one on the node's network.
func (w *world) questions() []question {
	var all []question
	for _, from := range append(slices.Clone(w.pods), "x/host") {
		for _, to := range w.pods {
			if from == to {
				continue
			}
			for _, port := range tcp {
				all = append(all, question{from, to, "TCP", port})
			}
			for _, port := range udp {
				all = append(all, question{from, to, "UDP", port})
			}
		}
	}
	return all
}

// ask has Theseus decide, on the cluster as it was before any policy and the policies of a scene.
func (w *world) ask(questions []question, documents []string) []string {
	w.t.Helper()
	files := []string{w.snapshot, w.accounts}
	if len(documents) > 0 {
		file := filepath.Join(w.t.TempDir(), "policies.yaml")
		if err := os.WriteFile(file, []byte(strings.Join(documents, "---\n")), 0o600); err != nil {
			w.t.Fatal(err)
		}
		files = append(files, file)
	}
	input, err := json.Marshal(questions)
	if err != nil {
		w.t.Fatal(err)
	}
	var stderr bytes.Buffer
	command := exec.CommandContext(w.t.Context(), w.verdicts, files...)
	command.Stdin, command.Stderr = bytes.NewReader(input), &stderr
	out, err := command.Output()
	var answers []string
	if err == nil {
		err = json.Unmarshal(out, &answers)
	}
	if err != nil || len(answers) != len(questions) {
		w.t.Fatalf("%d answers to %d questions: %v %s", len(answers), len(questions), err, stderr.String())
	}
	return answers
}

// play puts a scene in the place of the one before, and waits until it is in force: the last policies of it are fences
// that open one port, a new one each time, and the agent of each node takes policies of one kind in their order.
func (w *world) play(n int, before, documents []string) {
	w.t.Helper()
	if len(before) > 0 {
		w.kubectl(strings.Join(before, "---\n"), "delete", "--wait=false", "-f", "-")
	}
	port := fences + n
	open := func(port int) string { return fmt.Sprintf("[{ports: [{port: %d}]}]", port) }
	all := append(slices.Clone(documents),
		kubernetes("fence", "fence", fmt.Sprintf("{podSelector: {}, ingress: %s}", open(port))))
	if w.network == "cilium" {
		rule := "endpointSelector: {matchLabels: {'k8s:io.kubernetes.pod.namespace': fence}}, ingress: [{toPorts: " +
			"[{ports: [{port: '%d', protocol: TCP}]}]}]"
		all = append(all, ciliumPolicy("fence", fmt.Sprintf(rule, port+apart)),
			ciliumPolicy("", fmt.Sprintf(rule, port+2*apart)))
		w.kubectl(strings.Join(all, "---\n"), "apply", "-f", "-")
		w.settle(port, port+apart, port+2*apart)
		return
	}
	rule := fmt.Sprintf("order: 1, selector: team == 'fence', types: [Ingress], ingress: [{action: Deny, "+
		"protocol: TCP, destination: {notPorts: [%d]}}]", port)
	all = append(all, global("zz-fence", rule), namespaced("fence", "zz-fence", rule))
	w.kubectl(strings.Join(all, "---\n"), "apply", "-f", "-")
	var targets []knock.Target
	var want []bool
	for i := range w.NodeNames() {
		at := w.addresses[fmt.Sprintf("fence/post-%d", i)]
		for _, port := range []int{port, port + 1} {
			targets = append(targets, knock.Target{Protocol: "TCP", Address: fmt.Sprintf("%s:%d", at, port)})
			want = append(want, len(want)%2 == 0)
		}
	}
	var got []bool
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		if got = w.knock("fence/client", targets); slices.Equal(got, want) {
			return
		}
	}
	w.t.Fatalf("scene %d is not in force: %v", n, got)
}

func (w *world) knock(from string, targets []knock.Target) []bool {
	w.t.Helper()
	input, err := json.Marshal(targets)
	if err != nil {
		w.t.Fatal(err)
	}
	var text string
	if namespace, name, pod := strings.Cut(from, "/"); pod {
		text, err = w.Kubectl(w.t.Context(), bytes.NewReader(input), "-n", namespace, "exec", "-i",
			name, "--", "/workload", "knock")
	} else {
		text, err = w.outside(bytes.NewReader(input), "knock")
	}
	var opened []bool
	if err == nil {
		err = json.Unmarshal([]byte(text), &opened)
	}
	if err != nil || len(opened) != len(targets) {
		w.t.Errorf("knock from %s: %v (%s)", from, err, text)
		return make([]bool, len(targets))
	}
	return opened
}

// measure makes the connections, from all ends at once.
func (w *world) measure(questions []question) []bool {
	opened := make([]bool, len(questions))
	var group sync.WaitGroup
	ends := map[string]bool{}
	for _, q := range questions {
		ends[q.From] = true
	}
	for from := range ends {
		var at []int
		var targets []knock.Target
		for i, q := range questions {
			if q.From == from {
				at = append(at, i)
				targets = append(targets,
					knock.Target{Protocol: q.Protocol, Address: fmt.Sprintf("%s:%d", w.addresses[q.To], q.Port)})
			}
		}
		group.Go(func() {
			for i, yes := range w.knock(from, targets) {
				opened[at[i]] = yes
			}
		})
	}
	group.Wait()
	return opened
}

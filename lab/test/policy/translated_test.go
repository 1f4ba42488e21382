package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// The ends outside of the cluster: addresses of the fabric, which no lab uses. Connections from the outside come from
// the first; the network set "partners" has the second.
const (
	outsider = "203.0.113.7"
	partner  = "203.0.113.200"
)

// given are objects of Calico's that the sets use.
const given = `---
apiVersion: crd.projectcalico.org/v1
kind: Tier
metadata: {name: early}
spec: {order: 10}
---
apiVersion: crd.projectcalico.org/v1
kind: Tier
metadata: {name: open}
spec: {order: 50, defaultAction: Pass}
---
apiVersion: crd.projectcalico.org/v1
kind: Tier
metadata: {name: late}
spec: {order: 2000000}
---
apiVersion: crd.projectcalico.org/v1
kind: GlobalNetworkSet
metadata: {name: partners, labels: {kind: partner}}
spec: {nets: [` + partner + `/32]}
`

// translated is what `theseus policy translate` made of a scene.
type translated struct {
	documents []string // that a cluster on Cilium gets, with the NetworkPolicies of the scene
	report    string
	clean     bool // the report lists nothing: no verdict may change
}

// TestTranslated compares what Felix lets through under Calico's policies with what Cilium lets through under what
// `theseus policy translate` made of them, and both with Theseus' model: by real packets, between all pods, to and from
// a hostNetwork pod, and to and from addresses outside.
func TestTranslated(t *testing.T) {
	rigtest.Full(t, "translated policies on a real Calico and a real Cilium")
	verdicts, workload := built(t, "../../..", "./test/verdicts"), built(t, "../..", "./cmd/workload")
	cilium := start(t, "bees", "cilium", verdicts) // first: its build may take a while
	felix := start(t, "felix", "calico", verdicts)
	felix.kubectl(given, "apply", "-f", "-")
	for _, w := range []*world{felix, cilium} {
		w.workload = workload
		w.surround()
		w.serveOutside()
		w.look()
	}
	seed := seedOf(t)
	fmt.Fprintf(felix.Out, "seed %d; THESEUS_SEED=%d makes the same sets\n", seed, seed)
	ofFelix, ofCilium := felix.sets(seed), cilium.sets(seed)
	made := make([]translated, len(ofFelix))
	for n, s := range ofFelix {
		made[n] = felix.translate(s)
		for _, document := range ofCilium[n].documents { // whose addresses are those of its own pods
			if ofKubernetes(document) {
				made[n].documents = append(made[n].documents, document)
			}
		}
	}
	questions := felix.everything()
	said, seen := [2][][]string{}, [2][][]bool{}
	t.Run("packets", func(t *testing.T) {
		for i, w := range []*world{felix, cilium} {
			t.Run(w.network, func(t *testing.T) {
				t.Parallel() // each waits for its own packets most of the time
				w.t = t
				var before []string
				for n, s := range ofFelix {
					documents := s.documents
					if w == cilium {
						documents = made[n].documents
					}
					said[i] = append(said[i], w.ask(questions, documents))
					w.play(n, before, documents)
					before = documents
					seen[i] = append(seen[i], w.certain(questions, said[i][n]))
					if w == cilium {
						w.accepted(s.name)
					}
					w.compare(s.name, questions, said[i][n], seen[i][n], &made[n])
				}
			})
		}
	})
	clean, total, denied, changed, undecided := 0, 0, 0, 0, 0
	for n, s := range ofFelix {
		if n >= min(len(seen[0]), len(seen[1])) {
			break // it failed, and has said so
		}
		var wrong []string
		differently := 0
		for i, q := range questions {
			total++
			if !seen[0][n][i] {
				denied++
			}
			if said[0][n][i] == "depends" || said[1][n][i] == "depends" {
				undecided++
			}
			if seen[0][n][i] != seen[1][n][i] {
				differently++
				wrong = append(wrong, fmt.Sprintf("%s: let through by Felix: %t, by Cilium: %t", q, seen[0][n][i],
					seen[1][n][i]))
			}
		}
		changed += differently
		how := "in part"
		if made[n].clean {
			clean++
			how = "in full"
			complain(t, s.name+", of which the report says that nothing changes", wrong)
		}
		fmt.Fprintf(felix.Out, "%-45s translated %s, %3d of %d differently by Cilium\n", s.name, how, differently,
			len(questions))
	}
	fmt.Fprintf(felix.Out, "%d sets, %d of them translated in full; %d connections on each network: %d denied by "+
		"Felix, %d let through differently by Cilium, %d of which the model says that it depends\n", len(ofFelix),
		clean, total, denied, changed, undecided)
	if clean < len(ofFelix)/2 || denied < total/10 || undecided > total/10 {
		t.Error("that shows little")
	}
}

// certain makes the connections, and once more if one fails that should not: a packet may be lost, but a denied one
// never arrives.
func (w *world) certain(questions []question, said []string) []bool {
	seen := w.measure(questions)
	for i := range seen {
		if said[i] == "allow" && !seen[i] {
			for j, again := range w.measure(questions) {
				seen[j] = seen[j] || again
			}
			break
		}
	}
	return seen
}

// compare compares what a network let through with the model's verdicts.
func (w *world) compare(name string, questions []question, said []string, seen []bool, made *translated) {
	w.t.Helper()
	allowed := 0
	var wrong []string
	for i, q := range questions {
		if seen[i] {
			allowed++
		}
		if said[i] != "depends" && (said[i] == "allow") != seen[i] {
			wrong = append(wrong, fmt.Sprintf("%s: the model says %s, and it was let through: %t", q, said[i], seen[i]))
		}
	}
	fmt.Fprintf(w.Out, "%-7s %-45s %3d of %d let through\n", w.network, name, allowed, len(questions))
	complain(w.t, w.network+", "+name, wrong)
	if len(wrong) > 0 && w.network == "cilium" {
		w.t.Logf("%s, as translated:\n%s\n%s", name, strings.Join(made.documents, "---\n"), made.report)
	}
}

// complain reports what is wrong of a set, with some of the lines.
func complain(t *testing.T, name string, wrong []string) {
	t.Helper()
	for i, line := range wrong {
		if i == 12 {
			t.Errorf("%s: and %d more", name, len(wrong)-i)
			return
		}
		t.Errorf("%s: %s", name, line)
	}
}

func (q question) String() string {
	return fmt.Sprintf("%s to %s, %s %d", q.From, q.To, q.Protocol, q.Port)
}

func seedOf(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("THESEUS_SEED")
	if text == "" {
		return rand.Uint64N(1e6)
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return seed
}

func ofKubernetes(document string) bool {
	return strings.HasPrefix(document, "apiVersion: networking.k8s.io")
}

// everything are all connections between the pods, those of a hostNetwork pod, and those with the outside.
func (w *world) everything() []question {
	all := w.questions()
	for _, name := range w.pods {
		all = append(all, question{name, "x/host", "TCP", hostPort}, question{outsider, name, "UDP", 81})
		for _, port := range tcp {
			all = append(all, question{outsider, name, "TCP", port})
		}
		for _, to := range []string{outsider, partner} {
			all = append(all, question{name, to, "TCP", 80}, question{name, to, "TCP", 83})
		}
	}
	return all
}

// surround gives the fabric the addresses outside, and routes to the pods: by their nodes, as another machine in the
// nodes' network would have them.
func (w *world) surround() {
	w.t.Helper()
	do := func(args ...string) {
		if out, err := w.onFabric("ip", args...).CombinedOutput(); err != nil {
			w.t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	for _, address := range []string{outsider, partner} {
		w.addresses[address] = address
		do("address", "replace", address+"/32", "dev", "lo")
	}
	for line := range strings.Lines(w.kubectl("", "get", "pods", "-n", "x", "-o", hostOf) +
		w.kubectl("", "get", "pods", "-n", "z", "-o", hostOf)) {
		if address, node, _ := strings.Cut(strings.TrimSpace(line), " "); address != node {
			do("route", "replace", address, "via", node, "src", outsider)
		}
	}
}

const hostOf = `jsonpath={range .items[*]}{.status.podIP} {.status.hostIP}{"\n"}{end}`

// serveOutside answers on the addresses outside until the test ends: each lab has a fabric of its own.
func (w *world) serveOutside() {
	w.t.Helper()
	run := w.onFabric(w.workload, "open", "--tcp=80,83")
	run.Stdout, run.Stderr = w.Out, w.Out
	if err := run.Start(); err != nil {
		w.t.Fatal(err)
	}
	go run.Wait() //nolint:errcheck // it ends with the test
}

// outside runs the workload's program outside of the cluster.
func (w *world) outside(in io.Reader, args ...string) (string, error) {
	run := w.onFabric(w.workload, args...)
	run.Stdin = in
	out, err := run.Output()
	return string(out), err
}

// onFabric is a program in the network that connects the nodes, outside of the cluster.
func (w *world) onFabric(program string, args ...string) *exec.Cmd {
	run := exec.CommandContext(w.t.Context(), w.Lab, append([]string{"exec", "--network", "--name", w.Name, "--",
		program}, args...)...)
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) }
	return run
}

// translate has Theseus translate Calico's policies of a scene.
func (w *world) translate(s scene) translated {
	w.t.Helper()
	dir := w.t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	args := []string{"policy", "translate", "--from", "calico", "--to", "cilium", "--snapshot", w.snapshot,
		"--snapshot", w.accounts, "-o", file("cilium.yaml"), "--report", file("report.txt")}
	if len(s.documents) > 0 {
		if err := os.WriteFile(file("calico.yaml"), []byte(strings.Join(s.documents, "---\n")), 0o600); err != nil {
			w.t.Fatal(err)
		}
		args = append(args, "--snapshot", file("calico.yaml"))
	}
	run := exec.CommandContext(w.t.Context(), w.Theseus, args...)
	said, err := run.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !(errors.As(err, &failed) && failed.ExitCode() == 3) {
		w.t.Fatalf("%s: %v: %s", s.name, err, said)
	}
	made := translated{clean: err == nil}
	for _, name := range []string{"report.txt", "cilium.yaml"} {
		text, err := os.ReadFile(file(name))
		if err != nil {
			w.t.Fatal(err)
		}
		if name == "report.txt" {
			made.report = string(text)
			continue
		}
		for document := range strings.SplitSeq(string(text), "---\n") {
			if strings.Contains(document, "kind: ") {
				made.documents = append(made.documents, document)
			}
		}
	}
	return made
}

// settle waits until Cilium's agents have read the fences, whose ports are given, and no policy that is gone, and have
// that in force for all of their pods. Packets would not tell: what another policy allows, a fence cannot close.
func (w *world) settle(ports ...int) {
	w.t.Helper()
	there := w.kubectl("", "get", "networkpolicies,ciliumnetworkpolicies,ciliumclusterwidenetworkpolicies", "-A", "-o",
		`jsonpath={.items[*].metadata.uid}`)
	for _, agent := range w.agents() {
		in := []string{"-n", "kube-system", "exec", agent, "-c", "cilium-agent", "--", "cilium-dbg", "policy"}
		var said, revision string
		read := func() bool {
			said, revision, _ = strings.Cut("\n"+w.kubectl("", append(in, "get")...), "\nRevision: ")
			for _, port := range ports {
				if !strings.Contains(said, fmt.Sprintf("\"port\": \"%d\"", port)) {
					return false
				}
			}
			for _, found := range uidOf.FindAllStringSubmatch(said, -1) {
				if !strings.Contains(there, found[1]) {
					return false
				}
			}
			return true
		}
		for until := time.Now().Add(time.Minute); !read(); {
			if time.Now().After(until) {
				w.t.Fatalf("%s has not read the fences %v: %s", agent, ports, said)
			}
		}
		w.kubectl("", append(in, "wait", strings.TrimSpace(revision))...)
	}
}

// uidOf finds the Kubernetes objects of which Cilium's agents hold policies.
var uidOf = regexp.MustCompile(`"io.cilium.k8s.policy.uid",\s+"value": "([^"]+)"`)

func (w *world) agents() []string {
	return strings.Fields(w.kubectl("", "-n", "kube-system", "get", "pods", "-l", "k8s-app=cilium", "-o",
		"jsonpath={.items[*].metadata.name}"))
}

// accepted demands that Cilium has not refused a policy that the API server took.
func (w *world) accepted(scene string) {
	w.t.Helper()
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct{ Name string }
			Status   struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
	}
	text := w.kubectl("", "get", "ciliumnetworkpolicies,ciliumclusterwidenetworkpolicies", "-A", "-o", "json")
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		w.t.Fatal(err)
	}
	for _, item := range list.Items {
		for _, c := range item.Status.Conditions {
			if c.Type == "Valid" && c.Status != "True" {
				w.t.Errorf("%s: Cilium refuses %s %s: %s", scene, item.Kind, item.Metadata.Name, c.Message)
			}
		}
	}
}

// sets are those that hold one feature of Calico's each, those made at random, and those of cases_test.go.
func (w *world) sets(seed uint64) []scene {
	w.t.Helper()
	all := calicoScenes()
	d := dice{rand.New(rand.NewPCG(seed, 1))}
	for n := range 8 {
		all = append(all, scene{fmt.Sprintf("random %d", n+1), d.policies()})
	}
	all = append(all, scenes(func(name string) string { return w.addresses[name] })...)
	return all
}

package document

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/cluster"
)

const podList = `apiVersion: v1
items:
- apiVersion: v1
  kind: Pod
  metadata:
    name: a
    namespace: shop
  spec:
    containers:
    - name: c
      env:
      - name: PASSWORD
        value: secret
      args:
      - |
        - not an item
        kind: nothing
- apiVersion: v1
  kind: Pod
  metadata:
    name: b
    namespace: shop
kind: List
metadata:
  resourceVersion: ""
`

func read(t *testing.T, inputs ...string) (*cluster.Snapshot, []string) {
	t.Helper()
	b := New("test")
	for i := 0; i+1 < len(inputs); i += 2 {
		if err := b.Add(inputs[i], strings.NewReader(inputs[i+1]), false); err != nil {
			t.Fatal(err)
		}
	}
	return b.Snapshot()
}

// names is every object of a snapshot as kind/name, in order.
func names(s *cluster.Snapshot) string {
	var found []string
	for _, o := range s.Nodes {
		found = append(found, "node/"+o.Name)
	}
	for _, o := range s.Pods {
		found = append(found, "pod/"+o.Name)
	}
	for _, o := range s.ConfigMaps {
		found = append(found, "configmap/"+o.Name)
	}
	for _, o := range s.Budgets {
		found = append(found, "budget/"+o.Name)
	}
	for _, o := range s.Other {
		found = append(found, o.GetKind()+"/"+o.GetName())
	}
	return strings.Join(found, " ")
}

func TestForms(t *testing.T) {
	pod := func(name string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `"}}`
	}
	node := "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
	for name, test := range map[string]struct{ input, want string }{
		"yaml list":  {podList, "pod/a pod/b"},
		"one object": {node, "node/n1"},
		"comments and markers": {"# c\n---\n# c\n---\n" + node + "---\n\n...\n---\n" + podList,
			"node/n1 pod/a pod/b"},
		"windows line ends, bom": {"\ufeff" + strings.ReplaceAll(podList, "\n", "\r\n"), "pod/a pod/b"},
		"indented items": {"kind: List\napiVersion: v1\nitems:\n  - apiVersion: v1\n    kind: Node\n" +
			"    metadata:\n      name: n1\n\n  # c\n  - apiVersion: v1\n    kind: Node\n    metadata:\n" +
			"      name: m\n", "node/n1 node/m"},
		"flow items": {"kind: List\napiVersion: v1\nitems: [" + pod("a") + ", " + pod("b") + "]\n", "pod/a pod/b"},
		"typed list, kind last": {"apiVersion: v1\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n" +
			"kind: PodList\n", "pod/a pod/b"},
		"list in a list": {
			`{"kind":"List","apiVersion":"v1","items":[{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}]}]}`,
			"pod/a"},
		"json list":             {`{"apiVersion":"v1","items":[` + pod("a") + `,` + pod("b") + `],"kind":"List"}`, "pod/a pod/b"},
		"json objects in a row": {pod("a") + pod("b") + "\n" + pod("c"), "pod/a pod/b pod/c"},
		"json array":            {"[" + pod("a") + "," + pod("b") + "]", "pod/a pod/b"},
		"null items":            {`{"apiVersion":"v1","items":null,"kind":"PodList"}`, ""},
		"unknown kinds":         {"apiVersion: x.io/v9\nkind: Odd\nmetadata: {name: o}\n", "Odd/o"},
		"old budget": {"apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: o}\n",
			"budget/o"},
		"secrets are left out": {"apiVersion: v1\nkind: Secret\nmetadata: {name: o}\n", ""},
		"others' config maps":  {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: o, namespace: shop}\n", ""},
		"the system's": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: o, namespace: kube-system}\n",
			"configmap/o"},
		"empty":         {"", ""},
		"only comments": {"# nothing\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := read(t, "in", test.input)
			if diff := cmp.Diff(test.want, names(s)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 20000)
	for name, test := range map[string]struct{ input, want string }{
		"truncated json": {"{\"apiVersion\": \"v1\",\n\"items\": [\n{\"kind\":", "in:3: bad JSON: it is truncated"},
		"broken json":    {"{\"apiVersion\": \"v1\",\n\"kind\" \"Pod\"}", "in:2: bad JSON: expected colon"},
		"deep json":      {deep, "nested more than 1000 deep"},
		"bad item": {strings.Replace(podList, "    name: b", "    name: b: c", 1),
			"in:21: bad YAML: mapping values"},
		"tab":               {"apiVersion: v1\nkind: Pod\nmetadata:\n\tname: x\n", "in:4: bad YAML: found character"},
		"no object":         {"hello: world\n", "in:1: not a Kubernetes object"},
		"text":              {"hello\n", "in:1: not a Kubernetes object"},
		"list without kind": {"items:\n- {a: b}\n", "in:1: a List without a kind"},
		"truncated list": {podList[:strings.Index(podList, "kind: List")],
			"in:1: a List without a kind: the file is truncated"},
		"truncated item": {podList[:strings.LastIndex(podList, "op")],
			"in:1: a List without a kind: the file is truncated"},
		"items not a list": {"kind: List\napiVersion: v1\nitems:\n  a: b\n", "in:4: items must be a list"},
		"items elsewhere":  {"kind: Odd\napiVersion: v1\nitems:\n- {a: b}\n", "in:1: a Odd with items"},
		"wrong type": {"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: 3}\n",
			"in:1: Pod: spec.containers: a number is not a valid"},
		"no name": {"---\napiVersion: v1\nkind: Pod\n", "in:2: Pod without metadata.name"},
		"newer snapshot": {`{"apiVersion":"theseus.dev/v1beta1","kind":"Snapshot","pods":"in a way of its own"}`,
			"in:1: a snapshot of version theseus.dev/v1beta1: this theseus reads theseus.dev/v1alpha1"},
		"snapshot of rubble": {`{"apiVersion":"theseus.dev/v1alpha1","kind":"Snapshot","pods":"x"}`,
			"in:1: expected a list"},
		"a plan": {"apiVersion: theseus.dev/v1alpha1\nkind: Plan\nsteps: []\n",
			"in:1: a Plan does not describe a cluster: it is for theseus apply"},
		"a plan as json": {`{"apiVersion":"theseus.dev/v1alpha1","kind":"Plan","steps":[]}`,
			"in:1: a Plan does not describe a cluster"},
		"a change": {podList + "---\napiVersion: theseus.dev/v1alpha1\nkind: Change\n",
			"a Change does not describe a cluster: it is for --change"},
		"number": {`["a"]`, "in:1: not a Kubernetes object"},
		"binary": {"\x00\x01\x02", "in: not text"},
	} {
		t.Run(name, func(t *testing.T) {
			err := New("test").Add("in", strings.NewReader(test.input), false)
			var placed *Error
			if !errors.As(err, &placed) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestLastWins(t *testing.T) {
	node := "apiVersion: v1\nkind: Node\nmetadata: {name: n1, resourceVersion: \"%d\"}\n"
	s, notes := read(t, "one.yaml", fmt.Sprintf(node, 1), "two.yaml", "---\n"+fmt.Sprintf(node, 2))
	if len(s.Nodes) != 1 || s.Nodes[0].ResourceVersion != "2" {
		t.Errorf("got %v", s.Nodes)
	}
	if diff := cmp.Diff([]string{"two.yaml:2: duplicate Node n1: using this one"}, notes); diff != "" {
		t.Error(diff)
	}
	if s.Sources[0].From != "one.yaml, two.yaml" {
		t.Errorf("source: %v", s.Sources[0])
	}
}

func TestSourcesNameWhatIsMissing(t *testing.T) {
	s, _ := read(t, "a/pods.yaml", podList, "a/networkpolicies.yaml", "apiVersion: v1\nitems: []\nkind: List\n",
		"a/x.json", `{"apiVersion":"v1","kind":"ServiceList","items":[]}`)
	for resource, want := range map[string]string{
		"pods": "", "networkpolicies": "", "services": "", "nodes": "not in the input", "odd": "not in the input",
	} {
		if _, missing := s.Has(resource); missing != want {
			t.Errorf("%s: missing %q, want %q", resource, missing, want)
		}
	}
	if value := s.Pods[0].Spec.Containers[0].Env[0].Value; value != "" {
		t.Errorf("a value outside of the system's namespaces was kept: %q", value)
	}
}

func TestManyDuplicatesMakeFewNotes(t *testing.T) {
	_, notes := read(t, "in", strings.Repeat("---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\n", 3000))
	if len(notes) != 51 {
		t.Errorf("%d notes", len(notes))
	}
}

func TestNotesOfOddInput(t *testing.T) {
	for name, test := range map[string]struct{ input, want string }{
		"no namespace": {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n",
			"in:1: Pod p has no namespace: using default, like kubectl"},
		"newer snapshot": {`{"apiVersion":"theseus.dev/v1alpha1","kind":"Snapshot","theseus":"v9","weather":"fine"}`,
			`in:1: ignoring the unknown field "weather" of the snapshot: a newer theseus (v9) wrote it`},
		"empty": {"", "in: empty"},
	} {
		_, notes := read(t, "in", test.input)
		if diff := cmp.Diff([]string{test.want}, notes); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestLenientSkipsWhatIsNoObject(t *testing.T) {
	b := New("test")
	if err := b.Add("in", strings.NewReader("replicas: 3\n---\napiVersion: theseus.dev/v1alpha1\nkind: Plan\n---\n"+
		podList), true); err != nil {
		t.Fatal(err)
	}
	if s, notes := b.Snapshot(); names(s) != "pod/a pod/b" || len(notes) != 2 {
		t.Errorf("got %s, %q", names(s), notes)
	}
}

func TestObjectsKeepsAllInOrder(t *testing.T) {
	objects, err := Objects("in", strings.NewReader("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n---\n"+podList))
	var got []string
	for _, o := range objects {
		got = append(got, o.GetKind()+"/"+o.GetName())
	}
	if diff := cmp.Diff([]string{"Secret/s", "Pod/a", "Pod/b"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// FuzzAdd holds that no input makes the reader panic, and that errors say where.
func FuzzAdd(f *testing.F) {
	f.Add(podList)
	f.Add(`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}]}`)
	f.Add(`{"apiVersion":"theseus.dev/v1alpha1","kind":"Snapshot","pods":[{"metadata":{"name":"a"}}],"sources":[]}`)
	f.Add("apiVersion: theseus.dev/v1alpha1\nkind: Snapshot\npods:\n- metadata: {name: a}\n")
	f.Add("items:\n- - a\n -\n  - b\nkind: List")
	f.Fuzz(func(t *testing.T, input string) {
		b := New("test")
		err := b.Add("in", strings.NewReader(input), len(input)%2 == 0)
		var placed *Error
		if err != nil && !errors.As(err, &placed) {
			t.Errorf("an error without a place: %v", err)
		}
		b.Snapshot()
	})
}

// An item of a List may refer to an anchor of an item before it, and to one above the items.
func TestAnchorsAcrossItems(t *testing.T) {
	for name, text := range map[string]string{
		"of an item": "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n" +
			"  metadata: {name: a}\n" +
			"- apiVersion: v1\n  kind: Namespace\n  metadata:\n    name: b\n    labels: &l\n      k: v\n" +
			"- apiVersion: v1\n  kind: Namespace\n  metadata:\n    name: c\n    labels: *l\n",
		"of the head": "metadata:\n  labels: &l {k: v}\napiVersion: v1\nitems:\n- apiVersion: v1\n" +
			"  kind: Namespace\n  metadata: {name: a}\n" +
			"- apiVersion: v1\n  kind: Namespace\n  metadata: {name: b, labels: *l}\n" +
			"- apiVersion: v1\n  kind: Namespace\n  metadata: {name: c, labels: *l}\nkind: List\n",
	} {
		t.Run(name, func(t *testing.T) {
			b := New("test")
			if err := b.Add("list.yaml", strings.NewReader(text), false); err != nil {
				t.Fatal(err)
			}
			s, _ := b.Snapshot()
			if len(s.Namespaces) != 3 || s.Namespaces[1].Name != "b" || s.Namespaces[2].Labels["k"] != "v" {
				t.Errorf("%+v", s.Namespaces)
			}
		})
	}
}

// What aliases add is bounded for a whole input, also where each of its documents adds little.
func TestAliasesAreBounded(t *testing.T) {
	one := "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  annotations:\n    a: &a " +
		strings.Repeat("x", 100_000) +
		strings.Repeat("\n    %: *a", 10) + "\n---\n"
	for i := range 10 {
		one = strings.Replace(one, "%", string(rune('b'+i)), 1)
	}
	err := New("test").Add("bomb.yaml", strings.NewReader(strings.Repeat(one, 10)), false)
	if err == nil || !strings.Contains(err.Error(), "aliases add more than 4 MiB") {
		t.Errorf("%.200v", err)
	}
}

// Text that is nested without an end costs one line, and neither the stack nor the square of its length.
func TestNestedInput(t *testing.T) {
	lists, end := strings.Repeat(`{"apiVersion":"v1","kind":"List","items":[`, 500), strings.Repeat("]}", 500)
	for name, text := range map[string]string{
		"JSON": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"x":` +
			strings.Repeat("[", 1<<20),
		"YAML":           "a: " + strings.Repeat("[", 20_000),
		"Lists of Lists": lists + end,
	} {
		t.Run(name, func(t *testing.T) {
			err := New("test").Add("in", strings.NewReader(text), false)
			if err == nil || strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
				t.Errorf("%.400v", err)
			}
		})
	}
}

// TestEmptyLists: an empty typed list says of what there is nothing, whatever its file is called; of an empty List the
// file's name says it.
func TestEmptyLists(t *testing.T) {
	for _, test := range []struct{ file, text, resource string }{
		{"a.yaml", "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfigurationList\nitems: []\n",
			"mutatingwebhookconfigurations"},
		{"a.json", `{"apiVersion":"v1","kind":"PersistentVolumeList","items":[]}`, "persistentvolumes"},
		{"a.yaml", "apiVersion: crd.projectcalico.org/v1\nkind: BGPPeerList\nitems: []\n",
			"bgppeers.crd.projectcalico.org"},
		{"networkpolicies.yaml", "apiVersion: v1\nkind: List\nitems: []\n", "networkpolicies"},
		{"dir/mutatingwebhookconfigurations.yaml", "apiVersion: v1\nkind: List\nitems: []\n",
			"mutatingwebhookconfigurations"},
		{"resourcequotas.yaml", "apiVersion: v1\nkind: List\nitems: []\n", "resourcequotas"},
		{"a.yaml", "apiVersion: v1\nkind: LimitRangeList\nitems: []\n", "limitranges"},
		{"PersistentVolumes.json", `{"apiVersion":"v1","kind":"List","items":[]}`, "persistentvolumes"},
		{"ippools.crd.projectcalico.org.yaml", "apiVersion: v1\nkind: List\nitems: []\n",
			"ippools.crd.projectcalico.org"},
		{"ippools.projectcalico.org.yaml", "apiVersion: v1\nkind: List\nitems: []\n", "ippools.projectcalico.org"},
		{"ciliumnodes.cilium.io.yaml", "apiVersion: v1\nkind: List\nitems: []\n", "ciliumnodes.cilium.io"},
		{"adminnetworkpolicies.policy.networking.k8s.io.yaml", "apiVersion: v1\nkind: List\nitems: []\n",
			"adminnetworkpolicies.policy.networking.k8s.io"},
		{"networkpolicies.crd.antrea.io.json", `{"apiVersion":"v1","kind":"List","items":[]}`,
			"networkpolicies.crd.antrea.io"},
	} {
		b := New("test")
		if err := b.Add(test.file, strings.NewReader(test.text), false); err != nil {
			t.Fatalf("%s: %v", test.file, err)
		}
		if s, notes := b.Snapshot(); len(notes) > 0 {
			t.Errorf("%s: %v", test.file, notes)
		} else if there, why := s.Has(test.resource); !there {
			t.Errorf("%s: no %s: %s", test.file, test.resource, why)
		}
	}
}

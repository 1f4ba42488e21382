package approve

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/clitest"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// cluster is a cluster that holds a plan for the controller. user is who asks.
func cluster(t *testing.T, user *string) (*kube.Client, *plan.Plan) {
	t.Helper()
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := clitest.Plan(t, nil)
	kinds := map[schema.GroupVersionResource]string{}
	for _, kind := range []string{"Migration", "PlanPage", "JournalPage", "Approval"} {
		kinds[schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
			Resource: manifest.Plural(kind)}] = kind + "List"
	}
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
	system.UID = types.UID(p.Cluster.UID)
	client, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"}, "test") // what is asked otherwise is not there
	if err != nil {
		t.Fatal(err)
	}
	typed := fake.NewClientset(system)
	typed.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{
			Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: *user}}}, nil
	})
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	dynamic.PrependReactor("create", "approvals", func(clienttesting.Action) (bool, runtime.Object, error) {
		if *user != "mallory" {
			return false, nil, nil
		}
		of := schema.GroupResource{Group: v1alpha1.Group, Resource: "approvals"}
		return true, nil, apierrors.NewForbidden(of, "", nil)
	})
	client.Typed, client.Dynamic = typed, dynamic
	if err := journal.CreateInCluster(t.Context(), client.Dynamic, p); err != nil {
		t.Fatal(err)
	}
	return client, p
}

// TestApprove: a user approves the plan that the user has read, once, and in no other name.
func TestApprove(t *testing.T) {
	user := ""
	client, p := cluster(t, &user)
	for _, test := range []struct {
		user, expect, output string
		code                 int
		says                 string
	}{
		{"alice", "", "", exit.Usage, "hint: name the plan that you have read with --plan FILE"},
		{"alice", "0000", "", exit.NeedsPerson, "is not the expected one"},
		{"alice", p.Hash, "", exit.Done, "held (hash " + p.Hash +
			"): alice has approved it; 1 approval: alice\n`theseus watch held`"},
		{"alice", p.Hash, "", exit.Done, "alice had approved it before; 1 approval: alice\n"},
		{"mallory", p.Hash, "", exit.Failed, "error: mallory may not approve the plan: "},
		{"mallory", p.Hash, "", exit.Failed,
			"hint: grant the right: theseus rights approve --for user:mallory | kubectl apply -f -"},
		{"bob", p.Hash, "json", exit.Done, `{"already":false,"approvedBy":["alice","bob"],"name":"held","plan":"` +
			p.Hash + `","signed":false,"user":"bob"}`},
	} {
		user = test.user
		var out bytes.Buffer
		a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out, Err: &out}, Output: test.output}
		code := exit.Code(&out, approve(t.Context(), a, client, p.Name, &approval.Flags{Expect: test.expect}, ""))
		if code != test.code || !strings.Contains(out.String(), test.says) {
			t.Errorf("%s expects %q: exit %d, want %d with %q:\n%s",
				test.user, test.expect, code, test.code, test.says, out.String())
		}
		if test.expect == p.Hash && !strings.Contains(out.String(), "plan:    "+p.Hash+"\n") {
			t.Errorf("the plan is not shown:\n%s", out.String())
		}
	}
	if err := journal.NewCluster(client.Dynamic, p.Name).Append(t.Context(), clitest.Records(t, p,
		engine.Record{Event: engine.Finished, Result: engine.ResultDone})...); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out, Err: &out}}
	if code := exit.Code(&out, approve(t.Context(), a, client, p.Name,
		&approval.Flags{Expect: p.Hash}, "")); code != exit.Failed || !strings.Contains(out.String(), "has ended") {
		t.Errorf("exit %d:\n%s", code, out.String())
	}
}

// TestApproveOnOlderServers: an API server before Kubernetes 1.28 does not say who asks, so nothing is written.
func TestApproveOnOlderServers(t *testing.T) {
	user := "alice"
	client, p := cluster(t, &user)
	client.Typed.(*fake.Clientset).PrependReactor("create", "selfsubjectreviews",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Group: "authentication.k8s.io",
				Resource: "selfsubjectreviews"}, "")
		})
	var out bytes.Buffer
	a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out, Err: &out}}
	code := exit.Code(&out, approve(t.Context(), a, client, p.Name, &approval.Flags{Expect: p.Hash}, ""))
	if code != exit.Failed || !strings.Contains(out.String(), "approvals need Kubernetes 1.28 or later: this API "+
		"server has no SelfSubjectReview\nhint: apply the plan without --in-cluster") {
		t.Errorf("exit %d:\n%s", code, out.String())
	}
	for _, action := range client.Dynamic.(*dynamicfake.FakeDynamicClient).Actions() {
		if action.GetResource().Resource == "approvals" && action.GetVerb() == "create" {
			t.Error("an approval was created")
		}
	}
}

// TestSign: a signature of the plan's hash is in the approval, which `ssh-keygen -Y verify` checks; the approval
// without one stays.
func TestSign(t *testing.T) {
	user := "alice"
	client, p := cluster(t, &user)
	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
		key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, test := range []struct {
		key  string
		code int
		says string
	}{
		{"", exit.Done, "alice has approved it; 1 approval: alice\n"},
		{key, exit.Done, "alice has approved it, with a signature; 1 approval: alice\n"},
		{key, exit.Done, "alice had approved it before, with a signature; 1 approval: alice\n"},
		{key + ".absent", exit.Failed, "hint: name the file of an SSH key: --sign"},
	} {
		var out bytes.Buffer
		a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out, Err: &out}}
		code := exit.Code(&out, approve(t.Context(), a, client, p.Name, &approval.Flags{Expect: p.Hash}, test.key))
		if code != test.code || !strings.Contains(out.String(), test.says) {
			t.Errorf("%s: exit %d, want %d with %q:\n%s", test.key, code, test.code, test.says, out.String())
		}
	}
	list, err := client.Dynamic.Resource(schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: manifest.Plural("Approval")}).Namespace(v1alpha1.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	var signatures []string
	for _, one := range list.Items {
		if text, _, _ := unstructured.NestedString(one.Object, "spec", "signature"); text != "" {
			signatures = append(signatures, text)
		}
	}
	if len(signatures) != 1 {
		t.Fatalf("%d signatures", len(signatures))
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{key + ".sig": signatures[0], key + ".list": "alice " + string(public)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	verify := exec.CommandContext(t.Context(), "ssh-keygen", "-Y", "verify", "-f", key+".list", "-I", "alice", "-n",
		"theseus", "-s", key+".sig")
	verify.Stdin = strings.NewReader(p.Hash)
	if out, err := verify.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestManifest: the manifest of an approval is for one user, of the plan that was read, and approves nothing by itself.
func TestManifest(t *testing.T) {
	user := "alice"
	client, p := cluster(t, &user)
	const tool = "system:serviceaccount:argocd:argocd-application-controller"
	for _, test := range []struct {
		sender, expect, output string
		code                   int
		says                   string
	}{
		{"serviceaccount:argocd/argocd-application-controller", p.Hash, "", exit.Done, "user: " + tool + "\n"},
		{"user:bob", p.Hash, "json", exit.Done, `"user":"bob"}`},
		{"group:sre", p.Hash, "", exit.Usage, "is a group, and each approval is in the name of one user"},
		{"argocd", p.Hash, "", exit.Usage, "hint: name the user that applies the manifest"},
		{"user:bob", "", "", exit.Usage, "hint: name the plan that you have read with --plan FILE"},
		{"user:bob", "0000", "", exit.NeedsPerson, "is not the expected one"},
	} {
		var out, said bytes.Buffer
		a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out, Err: &said}, Output: test.output}
		code := exit.Code(&said, write(t.Context(), a, client, p.Name, &approval.Flags{Expect: test.expect}, "",
			test.sender))
		if code != test.code || !strings.Contains(out.String()+said.String(), test.says) {
			t.Errorf("for %s: exit %d, want %d with %q:\n%s%s", test.sender, code, test.code, test.says, &out, &said)
		}
		if code != exit.Done {
			if out.Len() > 0 {
				t.Errorf("for %s: a manifest is printed: %s", test.sender, &out)
			}
			continue
		}
		var printed v1alpha1.Approval
		if err := yaml.UnmarshalStrict(out.Bytes(), &printed); err != nil || printed.Spec.PlanHash != p.Hash ||
			printed.Spec.Migration != p.Name || printed.Kind != "Approval" ||
			printed.Namespace != v1alpha1.Namespace {
			t.Errorf("for %s: %v\n%s", test.sender, err, &out)
		}
		if !strings.Contains(said.String(), "nothing is approved yet") {
			t.Errorf("for %s: %s", test.sender, &said)
		}
	}
	if all, err := journal.Approvals(t.Context(), client.Dynamic, p.Name, p.Hash); err != nil || len(all) != 0 {
		t.Errorf("%d approvals, %v", len(all), err)
	}
}

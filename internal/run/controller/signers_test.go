package controller

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/kube/kubetest"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/safeio/signed"
)

// person is one with a key of ssh-keygen.
type person struct {
	file string // with the private key
	line string // of a list of allowed signers
}

func newPerson(t *testing.T, name string) person {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	keygen(t, "", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file)
	public, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return person{file, name + " " + strings.TrimSpace(string(public)) + "\n"}
}

// option is the person's line with an option.
func (p person) option(text string) string { return strings.Replace(p.line, " ", " "+text+" ", 1) }

// sign signs as `theseus approve --sign` does.
func (p person) sign(t *testing.T, hash string) string {
	t.Helper()
	text, err := signed.Sign([]byte(hash), p.file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func keygen(t *testing.T, input string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "ssh-keygen", args...)
	command.Stdin = strings.NewReader(input)
	out, err := command.Output()
	if err != nil {
		t.Fatalf("ssh-keygen %v: %v", args, err)
	}
	return string(out)
}

// listOf is a file with allowed signers.
func listOf(t *testing.T, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "allowed_signers")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// approvedBy finds who has approved in the message of a condition.
var approvedBy = regexp.MustCompile(`approved (?:so far )?by ([^;]+)`)

// TestSigned: where signatures are demanded, only people on the list count, each once, no matter which user wrote the
// approval. The status has the same count as the message.
func TestSigned(t *testing.T) {
	alice, bob, mallory := newPerson(t, "alice@example.com"), newPerson(t, "bob@example.com"), newPerson(t, "mallory")
	team := []string{alice.line, bob.line}
	ours, bobs := alice.sign(t, "hash"), bob.sign(t, "hash")
	with := func(user, signature string) v1alpha1.Approval {
		a := by(user)
		a.Spec.Signature = signature
		return a
	}
	old := with("ann", ours)
	old.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
	unserved, sound := Policy{Reason: v1alpha1.ReasonPolicyMissing, Object: "V/x", Unserved: true}, Policy{Since: noon}
	for _, test := range []struct {
		name      string
		policy    Policy
		list      []string
		needed    int
		approvals []v1alpha1.Approval
		reason    string
		says      string
	}{
		{"no policy and no list", unserved, nil, 1, []v1alpha1.Approval{with("ann", ours)},
			v1alpha1.ReasonSignersMissing, "set allowedSigners of the chart"},
		{"nothing yet", unserved, team, 1, nil, v1alpha1.ReasonTooFewApprovals,
			"0 signed approvals of 1: `theseus approve m --plan FILE --sign KEY` adds one"},
		{"an approval that anyone may have written", unserved, team, 1, []v1alpha1.Approval{by("ann")},
			v1alpha1.ReasonUnsigned, "a-ann (it has no signature)"},
		{"signed", unserved, team, 1, []v1alpha1.Approval{with("ann", ours)}, v1alpha1.ReasonEnoughApprovals,
			"approved by alice@example.com"},
		{"signed with ssh-keygen", unserved, team, 1, []v1alpha1.Approval{with("ann",
			keygen(t, "hash", "-q", "-Y", "sign", "-n", "theseus", "-f", bob.file))},
			v1alpha1.ReasonEnoughApprovals, "approved by bob@example.com"},
		{"one person as two users", unserved, team, 2, []v1alpha1.Approval{with("ann", ours), with("ben", ours)},
			v1alpha1.ReasonTooFewApprovals, "1 signed approval of 2"},
		{"one person with two keys", unserved, []string{alice.line, strings.Replace(bob.line, "bob", "alice", 1)},
			2, []v1alpha1.Approval{with("ann", ours), with("ben", bobs)}, v1alpha1.ReasonTooFewApprovals,
			"approved so far by alice@example.com"},
		{"two people", unserved, team, 2, []v1alpha1.Approval{with("ann", ours), with("ben", bobs)},
			v1alpha1.ReasonEnoughApprovals, "approved by alice@example.com, bob@example.com"},
		{"two people in one approval", unserved, team, 2, []v1alpha1.Approval{with("ci", ours+"\n"+bobs)},
			v1alpha1.ReasonEnoughApprovals, "approved by alice@example.com, bob@example.com"},
		{"two people, of whom one is not on the list", unserved, team, 2,
			[]v1alpha1.Approval{with("ann", ours), with("ben", mallory.sign(t, "hash"))},
			v1alpha1.ReasonUnsigned, "a-ben (spec.signature: the key SHA256:"},
		{"a signature of another plan", unserved, team, 1, []v1alpha1.Approval{with("ann", alice.sign(t, "other"))},
			v1alpha1.ReasonUnsigned, "is not for this plan"},
		{"a signature for another use", unserved, team, 1, []v1alpha1.Approval{with("ann",
			keygen(t, "hash", "-q", "-Y", "sign", "-n", "git", "-f", alice.file))}, v1alpha1.ReasonUnsigned,
			"not for theseus"},
		{"no signature at all", unserved, team, 1, []v1alpha1.Approval{with("ann", "hello")}, v1alpha1.ReasonUnsigned,
			"unexpected EOF"},
		{"a key that has expired since", unserved, []string{alice.option(`valid-before="20260102130001Z"`)}, 1,
			[]v1alpha1.Approval{with("ann", ours)}, v1alpha1.ReasonEnoughApprovals, ""},
		{"a key that had expired", unserved, []string{alice.option(`valid-before="20260102130000Z"`)}, 1,
			[]v1alpha1.Approval{with("ann", ours)}, v1alpha1.ReasonUnsigned, "is not valid at this time"},
		{"from before the migration", unserved, team, 1, []v1alpha1.Approval{old}, v1alpha1.ReasonTooFewApprovals,
			"delete and approve again: a-ann"},
		{"an empty list", unserved, []string{"# none\n"}, 1, []v1alpha1.Approval{with("ann", ours)},
			v1alpha1.ReasonSignersInvalid, "has no signers; use the format of ALLOWED SIGNERS"},
		{"a policy and a list, unsigned", sound, team, 1, []v1alpha1.Approval{by("ann")}, v1alpha1.ReasonUnsigned,
			"--sign KEY"},
		{"a policy and a list", sound, team, 1, []v1alpha1.Approval{with("ann", ours)},
			v1alpha1.ReasonEnoughApprovals, "approved by alice@example.com"},
		{"a policy and a broken list", sound, []string{"alice\n"}, 1, []v1alpha1.Approval{with("ann", ours)},
			v1alpha1.ReasonSignersInvalid, "allowed_signers:1: "},
		{"a policy that is missing, and a list", Policy{Reason: v1alpha1.ReasonPolicyMissing, Object: "V/x"}, team, 1,
			[]v1alpha1.Approval{with("ann", ours)}, v1alpha1.ReasonPolicyMissing, "V/x does not exist"},
		{"a policy, and a signature that is not asked for", sound, nil, 1, []v1alpha1.Approval{with("ann", ours)},
			v1alpha1.ReasonEnoughApprovals, "approved by ann"},
	} {
		signers := Signers{}
		if test.list != nil {
			signers = readSigners(listOf(t, test.list...))
		}
		m := migration(func(m *v1alpha1.Migration) { m.CreationTimestamp = metav1.NewTime(noon) })
		got, counts := approval(Situation{Migration: m, Policy: test.policy, Signers: signers, Needed: test.needed,
			Approvals: test.approvals, Now: noon})
		if got.Reason != test.reason || got.True != (test.reason == v1alpha1.ReasonEnoughApprovals) ||
			!strings.Contains(got.Message, test.says) {
			t.Errorf("%s: %+v, want %s and %q", test.name, got, test.reason, test.says)
		}
		want := v1alpha1.ApprovalCount{Needed: test.needed, SignedOnly: test.policy.Unserved || test.list != nil}
		if said := approvedBy.FindStringSubmatch(got.Message); said != nil {
			want.ApprovedBy = strings.Split(said[1], ", ")
			want.Counted = len(want.ApprovedBy)
		}
		if !reflect.DeepEqual(*counts, want) {
			t.Errorf("%s: %+v, want %+v, as in %q", test.name, *counts, want, got.Message)
		}
	}
}

// TestSignedAPIServer: with a real API server without admission policies, as before Kubernetes 1.30, users can write
// approvals in any name. None counts without a signature, and no signature is dropped or changed.
func TestSignedAPIServer(t *testing.T) {
	program := clustertest.Program(t, "signed approvals in a real API server")
	const controls = "system:serviceaccount:theseus-system:theseus-controller"
	config := clustertest.ControlPlane(t, program,
		clustertest.Options{Users: []string{"eve", controls}, NoPolicies: true})
	as := kubetest.Users(t, config)
	admin := as("token")
	if err := run.Prepare(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	for duty, to := range map[kube.Duty]kube.Subject{
		kube.Approve: {Kind: rbacv1.UserKind, Name: "eve"},
		kube.Controller: {Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.Namespace,
			Name: manifest.ControllerName}} {
		roles, err := kube.Roles(duty, "", nil, []kube.Subject{to})
		if err != nil {
			t.Fatal(err)
		}
		kubetest.Apply(t, admin, roles...)
	}
	alice, bob := newPerson(t, "alice@example.com"), newPerson(t, "bob@example.com")
	c := &Controller{Client: as(controls), Holder: HolderPrefix + "test", Approvals: 2, Dir: t.TempDir(),
		Version: "v0", Out: os.Stderr, plans: map[string]*loaded{}, again: map[string]*pause{},
		unread: map[string]*pause{}}
	create(t, admin)
	eve := as("eve")
	signs := func(user, signature string) {
		t.Helper()
		if _, err := journal.Approve(t.Context(), eve.Dynamic, "m", "hash", user, signature); err != nil {
			t.Fatal(err)
		}
	}

	counts := func(who ...string) {
		t.Helper()
		got := read(t, admin).Status.Approval
		if got != nil {
			slices.Sort(got.ApprovedBy) // approvals of one second have no order
		}
		want := v1alpha1.ApprovalCount{Needed: 2, Counted: len(who), SignedOnly: true, ApprovedBy: who}
		if got == nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("the status has %+v, want %+v", got, want)
		}
	}

	signs("ann", "") // a forgery, which this API server admits
	turns(t, c)
	wants(t, admin, v1alpha1.ConditionApproved, "False", v1alpha1.ReasonSignersMissing)
	counts()
	c.Signers = listOf(t, alice.line, bob.line)
	turns(t, c)
	wants(t, admin, v1alpha1.ConditionApproved, "False", v1alpha1.ReasonUnsigned)
	signs("ann", alice.sign(t, "hash"))
	signs("ben", alice.sign(t, "hash"))
	turns(t, c)
	wants(t, admin, v1alpha1.ConditionApproved, "False", v1alpha1.ReasonUnsigned)
	counts("alice@example.com")
	signs("ben", bob.sign(t, "other"))
	turns(t, c)
	wants(t, admin, v1alpha1.ConditionApproved, "False", v1alpha1.ReasonUnsigned)
	_, err := admin.Dynamic.Resource(resource("Approval")).Namespace(v1alpha1.Namespace).Patch(t.Context(),
		manifest.Approval("m", "hash", "ann", "").GetName(), types.MergePatchType,
		[]byte(`{"spec":{"signature":"x"}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "the spec of an approval never changes") {
		t.Errorf("a signature was added to an approval: %v", err)
	}
	if _, err := journal.Approve(t.Context(), eve.Dynamic, "m", "hash", "ann",
		strings.Repeat("x", 16<<10+1)); !apierrors.IsInvalid(err) {
		t.Errorf("the API server takes a signature of any size: %v", err)
	}
	signs("ben", bob.sign(t, "hash"))
	turns(t, c) // the plan cannot be read: this Migration has none
	wants(t, admin, v1alpha1.ConditionApproved, "True", v1alpha1.ReasonEnoughApprovals)
	counts("alice@example.com", "bob@example.com")
	wants(t, admin, v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonNeedsPerson)
	before := read(t, admin).ResourceVersion
	if turns(t, c); read(t, admin).ResourceVersion != before {
		t.Error("the same count was written again")
	}
	c.Signers = listOf(t, alice.line) // bob leaves the list
	turns(t, c)
	wants(t, admin, v1alpha1.ConditionApproved, "False", v1alpha1.ReasonUnsigned)
	counts("alice@example.com")
	c.Signers = listOf(t, bob.line)
	change(t, admin, `{"spec":{"planHash":"another"}}`)
	turns(t, c)
	counts() // no name is left over from before
}

package run

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// archiveCluster is a cluster with the Migration m.
func archiveCluster(t *testing.T) *fake.FakeDynamicClient {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{configMaps: "ConfigMapList"}
	for _, kind := range []string{"Migration", "JournalPage"} {
		plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: v1alpha1.Group,
			Version: v1alpha1.Version, Kind: kind})
		lists[plural] = kind + "List"
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	migration := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion,
		"kind":     "Migration",
		"metadata": map[string]any{"name": "m", "namespace": v1alpha1.Namespace, "uid": "uid-of-m"}}}
	if err := client.Tracker().Create(migrations, migration, v1alpha1.Namespace); err != nil {
		t.Fatal(err)
	}
	return client
}

// measured is evidence of paths that sent so many probes since their count began.
func measured(sent int64, paths ...string) kube.Collected {
	var all kube.Collected
	for _, id := range paths {
		all.Paths = append(all.Paths, v1alpha1.Path{ID: id})
		all.Results = append(all.Results,
			v1alpha1.PathResult{ID: id, Since: time.Unix(1, 0).UTC(), Sent: sent, Answered: sent})
	}
	return all
}

func mustSave(t *testing.T, a *archive, evidence kube.Collected) kube.Collected {
	t.Helper()
	all := kube.NewEvidence(evidence)
	if err := a.save(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	return all.Document()
}

func mustLoad(t *testing.T, client *fake.FakeDynamicClient) kube.Collected {
	t.Helper()
	got, err := newArchive(client, "m").load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func stored(t *testing.T, client *fake.FakeDynamicClient) []unstructured.Unstructured {
	t.Helper()
	all, err := client.Resource(configMaps).Namespace(v1alpha1.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return all.Items
}

// TestArchiveContinues: a process without the folder of the one before has its paths and counts, and goes on with them.
func TestArchiveContinues(t *testing.T) {
	client := archiveCluster(t)
	first := newArchive(client, "m")
	mustSave(t, first, measured(0))
	if n := len(stored(t, client)); n != 0 {
		t.Errorf("nothing was measured, and %d ConfigMaps were written", n)
	}
	mustSave(t, first, measured(10, "a/old>b", "b/old>a"))

	after := measured(15, "a/old>b", "c/old>a")
	got := mustSave(t, newArchive(client, "m"), after)
	want := kube.NewEvidence(measured(10, "b/old>a"))
	want.Merge(after)
	if diff := cmp.Diff(want.Document(), got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the second process (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(got, mustLoad(t, client), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the cluster (-want +got):\n%s", diff)
	}
	for _, one := range stored(t, client) {
		owners, labels := one.GetOwnerReferences(), one.GetLabels()
		if len(owners) != 1 || owners[0].Kind != "Migration" || owners[0].UID != "uid-of-m" ||
			labels[v1alpha1.LabelManaged] != "true" || labels["theseus.dev/migration"] != "m" ||
			!strings.HasPrefix(one.GetName(), "theseus-evidence-m-") {
			t.Errorf("%s: owners %v, labels %v", one.GetName(), owners, labels)
		}
	}
}

// TestArchiveWritesChanges: evidence that has not changed is not written again, also by the next process.
func TestArchiveWritesChanges(t *testing.T) {
	client := archiveCluster(t)
	writes := 0
	client.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetVerb() != "get" {
			writes++
		}
		return false, nil, nil
	})
	for range 2 {
		a := newArchive(client, "m")
		for range 2 {
			mustSave(t, a, measured(10, "a/old>b"))
		}
	}
	if writes != 2 { // an update that finds nothing, and the creation
		t.Errorf("%d writes of the same evidence", writes)
	}
}

// TestReportElsewhere: a machine that has seen nothing of a run reports all its paths.
func TestReportElsewhere(t *testing.T) {
	s := newStream(t, false)
	s.next()
	cluster := archiveCluster(t)
	if err := newArchive(cluster, "m").save(t.Context(), s.evidence); err != nil {
		t.Fatal(err)
	}
	// without the probes' kinds
	actor := &kube.Actor{Dynamic: cluster, Mapper: fixedMapper{meta.NewDefaultRESTMapper(nil)}, Clock: s}
	got, err := Gather(t.Context(), actor, "m", t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.evidence.Document(), got, cmpopts.EquateEmpty()); diff != "" || len(got.Paths) != 7 {
		t.Errorf("%d paths (-want +got):\n%s", len(got.Paths), diff)
	}
	if got, err := Gather(t.Context(), actor, "other", t.TempDir(), false); err != nil || len(got.Paths) != 0 {
		t.Errorf("another migration has %d paths, %v", len(got.Paths), err)
	}
}

// noisy is evidence that does not fit into one small part.
func noisy(sent int64) kube.Collected {
	random := rand.New(rand.NewPCG(1, uint64(sent)))
	var ids []string
	for i := range 40 {
		ids = append(ids, fmt.Sprintf("n%02d/old>%x", i, random.Uint64()))
	}
	return measured(sent, ids...)
}

// TestArchiveTorn ends the third write after each of its parts, with its effect and without. The write before it is
// read then, with a warning, and the next write mends it.
func TestArchiveTorn(t *testing.T) {
	for cut := range 12 {
		client := archiveCluster(t)
		a := newArchive(client, "m")
		a.perPart = 200
		first := mustSave(t, a, noisy(1))
		mustSave(t, a, first)
		second := mustSave(t, a, noisy(2))
		left, torn := cut, true
		client.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetVerb() == "get" || !torn {
				return false, nil, nil
			}
			if left--; left < 0 {
				return true, nil, apierrors.NewInternalError(fmt.Errorf("cut"))
			}
			return false, nil, nil
		})
		third := kube.NewEvidence(noisy(3))
		if err := a.save(t.Context(), third); err == nil {
			if cut == 0 {
				t.Fatal("nothing was cut")
			}
			continue // the whole write has fewer parts
		}
		next := newArchive(client, "m")
		next.perPart = a.perPart
		got, err := next.load(t.Context())
		if diff := cmp.Diff(second, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("cut after %d (-want +got):\n%s", cut, diff)
		}
		if cut > 0 && (err == nil || !strings.Contains(err.Error(), "the previous version of the evidence is used")) ||
			cut == 0 && err != nil {
			t.Errorf("cut after %d: %v", cut, err)
		}
		torn = false
		said := &listener{}
		keeper := &archiver{archive: &archive{client: client, migration: "m", perPart: a.perPart},
			evidence: third, say: said.Say}
		keeper.keep(t.Context(), false)
		if warned := strings.Contains(said.String(),
			"warning: the evidence in the cluster is damaged"); warned != (cut > 0) {
			t.Errorf("cut after %d: said %q", cut, said.String())
		}
		if diff := cmp.Diff(third.Document(), mustLoad(t, client), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("mended after %d (-want +got):\n%s", cut, diff)
		}
	}
}

// TestArchiveEdited: nothing is used of a set that was edited, if it is the only one.
func TestArchiveEdited(t *testing.T) {
	for _, edit := range []func(one *unstructured.Unstructured){
		func(one *unstructured.Unstructured) {
			one.SetAnnotations(map[string]string{annotationParts: "1000000"})
		},
		func(one *unstructured.Unstructured) { one.SetAnnotations(nil) },
		func(one *unstructured.Unstructured) { delete(one.Object, "binaryData") },
	} {
		client := archiveCluster(t)
		mustSave(t, newArchive(client, "m"), measured(1, "a/old>b"))
		one := &stored(t, client)[0]
		edit(one)
		if err := client.Tracker().Update(configMaps, one, v1alpha1.Namespace); err != nil {
			t.Fatal(err)
		}
		got, err := newArchive(client, "m").load(t.Context())
		if err == nil || !strings.Contains(err.Error(), "none of it is used") || len(got.Paths) != 0 {
			t.Errorf("%d paths, %v", len(got.Paths), err)
		}
	}
}

// TestArchiveTooLarge: evidence that is larger than its bounds is neither written nor read.
func TestArchiveTooLarge(t *testing.T) {
	client := archiveCluster(t)
	a := newArchive(client, "m")
	a.perPart = 10
	if err := a.save(t.Context(), kube.NewEvidence(noisy(1))); err == nil ||
		!strings.Contains(err.Error(), "at most 320 fit") || len(stored(t, client)) != 0 {
		t.Errorf("%v, %d ConfigMaps", err, len(stored(t, client)))
	}
	packed, err := pack(measured(1, strings.Repeat("a", 1000)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(packed, 1000); err == nil || !strings.Contains(err.Error(), "more than 1000 bytes") {
		t.Errorf("%v", err)
	}
	if _, err := unpack(packed, 10_000); err != nil {
		t.Error(err)
	}
	if _, err := unpack(bytes.Repeat([]byte("x"), 100), 1000); err == nil {
		t.Error("what is not packed was read")
	}
}

// TestArchiveFails: a run says once that it may not write, and not before its end that the API server was away.
func TestArchiveFails(t *testing.T) {
	forbidden := apierrors.NewForbidden(configMaps.GroupResource(), "x", fmt.Errorf("no"))
	away := apierrors.NewServiceUnavailable("later")
	for _, test := range []struct {
		err         error
		during, end string
	}{
		{forbidden, "note: ", "note: "}, {away, "", "warning: "},
		{apierrors.NewBadRequest("no"), "warning: ", "warning: "},
	} {
		client := archiveCluster(t)
		client.PrependReactor("*", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, test.err
		})
		said := &listener{}
		a := &archiver{archive: newArchive(client, "m"),
			evidence: kube.NewEvidence(measured(1, "a/old>b")), say: said.Say}
		a.keep(t.Context(), false)
		a.keep(t.Context(), false)
		if !strings.HasPrefix(said.String(), test.during) || test.during == "" && said.Len() > 0 {
			t.Errorf("%v: said %q", test.err, said.String())
		}
		a.keep(t.Context(), true)
		if !strings.HasPrefix(said.String(), test.end) || strings.Count(said.String(), "\n") != 1 {
			t.Errorf("%v: said %q", test.err, said.String())
		}
	}
}

// TestArchiving writes at the end of a run, also of one that was interrupted.
func TestArchiving(t *testing.T) {
	client := archiveCluster(t)
	said := &listener{}
	r := &Run{Client: &kube.Client{Dynamic: client}, Plan: &plan.Plan{Name: "m"}, View: said}
	evidence := kube.NewEvidence(measured(1, "a/old>b"))
	stop := r.archiving(t.Context(), newArchive(client, "m"), evidence)
	evidence.Merge(measured(2, "a/old>b"))
	stop()
	if got := mustLoad(t, client); len(got.Results) != 1 || got.Results[0].Sent != 2 || said.Len() != 0 {
		t.Errorf("%+v, said %q", got, said.String())
	}
}

// TestResumeReadsOnce: the first write of a process that continues a run does not read the archive again, and a damaged
// one is said once.
func TestResumeReadsOnce(t *testing.T) {
	client := archiveCluster(t)
	mustSave(t, newArchive(client, "m"), measured(10, "a/x"))
	one := &stored(t, client)[0]
	one.SetAnnotations(nil)
	if err := client.Tracker().Update(configMaps, one, v1alpha1.Namespace); err != nil {
		t.Fatal(err)
	}
	said, reads := &listener{}, 0
	client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		reads++
		return false, nil, nil
	})
	r := &Run{Client: &kube.Client{Dynamic: client}, Plan: &plan.Plan{Name: "m"}, View: said}
	archive, evidence := newArchive(client, "m"), kube.NewEvidence(measured(1, "a/old>b"))
	r.resume(t.Context(), archive, evidence, []engine.Record{{Seq: 1}})
	before := reads
	if before == 0 || strings.Count(said.String(), "warning: the evidence in the cluster is damaged") != 1 {
		t.Errorf("%d reads, said %q", before, said.String())
	}
	r.archiving(t.Context(), archive, evidence)()
	if reads != before || strings.Count(said.String(), "damaged") != 1 {
		t.Errorf("%d more reads, said %q", reads-before, said.String())
	}
	if got := mustLoad(t, client); len(got.Results) != 1 || got.Results[0].Sent != 1 {
		t.Errorf("%+v", got)
	}
}

// TestResume: a process on another machine counts on from what is in the cluster.
func TestResume(t *testing.T) {
	client := archiveCluster(t)
	want := mustSave(t, newArchive(client, "m"), measured(10, "a/x"))
	r := &Run{Client: &kube.Client{Dynamic: client}, Plan: &plan.Plan{Name: "m"}}
	for _, past := range [][]engine.Record{nil, {{Seq: 1}}} {
		evidence := kube.NewEvidence(kube.Collected{})
		r.resume(t.Context(), newArchive(client, "m"), evidence, past)
		if got := evidence.Document(); len(got.Paths) != len(past) ||
			len(past) > 0 && !cmp.Equal(got, want, cmpopts.EquateEmpty()) {
			t.Errorf("after %d records: %+v", len(past), got)
		}
	}
}

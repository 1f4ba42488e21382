package journal

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// smallPage is a page of which tests take several.
const smallPage = 16 << 10

// largePlan has more than so many bytes packed, by one page at most.
func largePlan(t testing.TB, name string, bytes int) *plan.Plan {
	random := rand.NewChaCha8([32]byte{})
	noise := make([]byte, bytes)
	_, _ = random.Read(noise)
	p := samplePlan(t)
	p.Name, p.Reason = name, hex.EncodeToString(noise) // half a byte of noise each
	p.Hash = plan.Hash(p)
	return p
}

func allPages(t *testing.T, s *server) []v1alpha1.PlanPage {
	t.Helper()
	pages, err := listAll[v1alpha1.PlanPage](t.Context(), s, planPageResource, "", "reading all pages")
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// wantPlan demands that the cluster has a plan whole, and no pages but its own, which go when it goes.
func wantPlan(t *testing.T, s *server, want *plan.Plan) {
	t.Helper()
	got, migration, err := Load(t.Context(), s, want.Name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("the plan came back as (-put +got):\n%.500s", diff)
	}
	pages := allPages(t, s)
	if len(pages) != len(migration.Spec.PlanPages) {
		t.Errorf("there are %d pages, and the Migration names %d", len(pages), len(migration.Spec.PlanPages))
	}
	for _, page := range pages {
		if owners := page.OwnerReferences; len(owners) != 1 || owners[0].Name != want.Name ||
			owners[0].UID != migration.UID || page.Labels[labelLoose] != "" {
			t.Errorf("page %s belongs to %v, with labels %v", page.Name, owners, page.Labels)
		}
	}
}

// TestCreateKilled lets each write of Create be the last one, with its effect and without. Then the same plan can be
// put there again, and another one, by whoever comes next, and nothing is left of what was begun; or the migration was
// there already, and whoever takes it over has it whole.
func TestCreateKilled(t *testing.T) {
	const pages = 3
	want, other := largePlan(t, "large", (pages-1)*smallPage), largePlan(t, "other", smallPage)
	writes := 2*pages + 1 // the pages, the Migration, the pages' owners
	for _, lost := range []bool{false, true} {
		for skip := range writes + 1 {
			for _, then := range []string{"again", "another", "taken over"} {
				t.Run(fmt.Sprintf("lost=%v/%d/%s", lost, skip, then), func(t *testing.T) {
					s := newServer()
					s.fail, s.lost, s.skip = apierrors.NewTooManyRequestsError("later"), lost, skip
					err := put(t.Context(), s, want, smallPage, entry{})
					if (err != nil) != (skip < writes) || err != nil && !errors.Is(err, engine.ErrUnavailable) {
						t.Fatalf("write %d: %v", skip, err)
					}
					s.fail = nil
					_, _, err = Load(t.Context(), s, want.Name)
					if there := skip > pages || skip == pages && lost; there != (err == nil) ||
						err != nil && !apierrors.IsNotFound(err) {
						t.Fatalf("after write %d: %v", skip, err)
					} else if there && then != "again" { // which is refused before Create
						if err := Settle(t.Context(), s); err != nil {
							t.Fatal(err)
						}
						wantPlan(t, s, want)
						return
					}
					next := want
					if then == "another" {
						next = other
					}
					if err := put(t.Context(), s, next, smallPage, entry{}); err != nil {
						t.Fatal(err)
					}
					wantPlan(t, s, next)
				})
			}
		}
	}
}

// TestCreateTwice: of two plans with one name the second is refused, and changes nothing.
func TestCreateTwice(t *testing.T) {
	s, first, second := newServer(), largePlan(t, "large", 10), largePlan(t, "large", 20)
	second.Reason = "another"
	second.Hash = plan.Hash(second)
	if err := Create(t.Context(), s, first); err != nil {
		t.Fatal(err)
	}
	if err := Create(t.Context(), s, second); err == nil || engine.HintOf(err) == "" ||
		!strings.Contains(err.Error(), "with another plan") {
		t.Errorf("%v", err)
	}
	wantPlan(t, s, first)
}

// TestCreatePruned: where an API server still has the definition of an older version, that is said, and no page is
// lost.
func TestCreatePruned(t *testing.T) {
	s := newServer()
	s.prune = true
	if err := Create(t.Context(), s, samplePlan(t)); !errors.Is(err, ErrOldCRDs) || engine.HintOf(err) == "" ||
		len(allPages(t, s)) != 1 {
		t.Errorf("%v, %d pages", err, len(allPages(t, s)))
	}
	if all, err := List(t.Context(), s); err != nil || len(all) > 0 {
		t.Errorf("a Migration without its fields stays: %v, %v", all, err)
	}
}

// TestLoadDemandsAllPages: a page that is missing or was edited is an error with a hint, and never a shorter plan.
func TestLoadDemandsAllPages(t *testing.T) {
	p := largePlan(t, "large", 2*smallPage)
	edit := func(data []byte) func(s *server, page string) error {
		return func(s *server, page string) error {
			return patch(t.Context(), s, planPageResource, page, map[string]any{"data": data})
		}
	}
	for name, damage := range map[string]func(s *server, page string) error{
		"missing": func(s *server, page string) error {
			return planPages(s).Delete(t.Context(), page, metav1.DeleteOptions{})
		},
		"edited":  edit([]byte("x")),
		"emptied": edit(nil),
	} {
		for page := range 3 {
			s := newServer()
			if err := put(t.Context(), s, p, smallPage, entry{}); err != nil {
				t.Fatal(err)
			}
			migration, err := get(t.Context(), s, p.Name)
			if err != nil || len(migration.Spec.PlanPages) != 3 {
				t.Fatalf("%v, %v", migration.Spec.PlanPages, err)
			}
			if err := damage(s, migration.Spec.PlanPages[page]); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Load(t.Context(), s, p.Name); err == nil || engine.HintOf(err) == "" ||
				apierrors.IsNotFound(err) {
				t.Errorf("page %d %s: %v", page, name, err)
			}
		}
	}
	s := newServer()
	if err := put(t.Context(), s, p, smallPage, entry{}); err != nil {
		t.Fatal(err)
	}
	if err := patch(t.Context(), s, migrationResource, p.Name,
		map[string]any{"spec": map[string]any{"planPages": nil}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(t.Context(), s, p.Name); err == nil || engine.HintOf(err) == "" {
		t.Errorf("a Migration that names no pages: %v", err)
	}
}

// TestOutline: status reads the outline of a plan. Only a plan with the very bytes that this machine has proven before
// is not proven again. Load, by which every run begins, always proves.
func TestOutline(t *testing.T) {
	p := samplePlan(t)
	edited := *p
	edited.Steps = slices.Clone(p.Steps)
	edited.Steps[0].Title = "Do something else"
	other := edited
	other.Hash = plan.Hash(&other)
	for name, test := range map[string]struct {
		stored *plan.Plan
		proven *plan.Plan // which this machine has proven, if any
		digest bool       // that of the stored plan is recorded
		shown  bool
	}{
		"as it was":                   {stored: p, digest: true, shown: true},
		"as it was, proven":           {stored: p, proven: p, digest: true, shown: true},
		"edited":                      {stored: &edited, proven: p},
		"edited, with its digest":     {stored: &edited, proven: p, digest: true},
		"edited, nothing proven":      {stored: &edited, digest: true},
		"edited, and said to be well": {stored: &edited, proven: &edited, digest: true, shown: true},
		"another plan":                {stored: &other, digest: true},
		"another plan, proven":        {stored: &other, proven: &other, digest: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			if err := put(t.Context(), s, p, planPageBytes, entry{}); err != nil {
				t.Fatal(err)
			}
			data, err := pack(test.stored)
			if err != nil {
				t.Fatal(err)
			}
			err = patch(t.Context(), s, planPageResource, allPages(t, s)[0].Name, map[string]any{"data": data})
			if err == nil && test.digest {
				err = patch(t.Context(), s, migrationResource, p.Name,
					map[string]any{"spec": map[string]any{"planDigest": digest(data)}})
			}
			if err != nil {
				t.Fatal(err)
			}
			proven := ""
			if test.proven != nil {
				known, err := pack(test.proven)
				if err != nil {
					t.Fatal(err)
				}
				proven = digest(known)
			}
			o, _, sum, err := LoadOutline(t.Context(), s, p.Name, proven)
			switch {
			case (err == nil) != test.shown:
				t.Errorf("its outline: %v", err)
			case err == nil && (o.Hash != p.Hash || o.Steps[0].Title != test.stored.Steps[0].Title ||
				sum != digest(data)):
				t.Errorf("the outline of another plan: %s, %s, %s", o.Hash, o.Steps[0].Title, sum)
			}
			if _, _, err := Load(t.Context(), s, p.Name); (err == nil) != (test.stored == p) {
				t.Errorf("whole: %v", err)
			}
		})
	}
}

// TestLoadOlder: the plan of a Migration that an older version made, in the object itself, is read as ever.
func TestLoadOlder(t *testing.T) {
	s, p := newServer(), samplePlan(t)
	text, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := zip.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	object, err := toUnstructured(
		&v1alpha1.Migration{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Migration"},
			ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: v1alpha1.Namespace},
			Spec:       v1alpha1.MigrationSpec{PlanGzip: packed.Bytes(), PlanHash: p.Hash}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resource(migrationResource).Namespace(v1alpha1.Namespace).Create(t.Context(), object,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), s, p, smallPage, entry{}); err != nil {
		t.Fatal(err)
	}
	wantPlan(t, s, p)
}

// TestSettleLeavesOthers: pages that have their owner are nobody else's to touch, nor those of a Migration that is
// there.
func TestSettleLeavesOthers(t *testing.T) {
	s := newServer()
	for _, name := range []string{"one", "two"} {
		if err := put(t.Context(), s, largePlan(t, name, smallPage), smallPage, entry{}); err != nil {
			t.Fatal(err)
		}
	}
	loose := allPages(t, s)[0]
	if _, err := planPages(s).Patch(t.Context(), loose.Name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"theseus.dev/loose":"true"},"ownerReferences":null}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := Settle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if n := len(allPages(t, s)); n != 4 {
		t.Errorf("%d pages are left of 4", n)
	}
	for _, name := range []string{"one", "two"} {
		if _, _, err := Load(t.Context(), s, name); err != nil {
			t.Error(err)
		}
	}
	list, err := planPages(s).List(t.Context(), metav1.ListOptions{LabelSelector: labelLoose})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("%d pages are loose, %v", len(list.Items), err)
	}
}

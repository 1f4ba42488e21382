package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestChainInCluster rewrites the journal's pages as somebody with the right to patch them would. What does not follow
// from the record before is an error for a person, which names the record and its page.
func TestChainInCluster(t *testing.T) {
	type pages = [][]engine.Record
	edit := func(change func(r *engine.Record)) func(pages) pages {
		return func(all pages) pages { change(&all[1][2]); return all }
	}
	for name, test := range map[string]struct {
		damage func(pages) pages
		want   []string
	}{
		"the result": {edit(func(r *engine.Record) { r.Result = engine.ResultFailed }), []string{"record 7", "-0002"}},
		"the inverse": {edit(func(r *engine.Record) {
			step.Edit(r.Inverse, func(do *step.Patch) { do.Merge = json.RawMessage(`{"spec":{"taints":[]}}`) })
		}),
			[]string{"record 7 ", "-0002", "action act-3"}},
		"what was seen before": {edit(func(r *engine.Record) { r.Before = json.RawMessage(`{}`) }),
			[]string{"record 7 "}},
		"the link": {edit(func(r *engine.Record) { r.Chain = "" }), []string{"record 7 "}},
		"a record dropped": {func(all pages) pages {
			all[0] = slices.Delete(all[0], 2, 3)
			for _, page := range all {
				for i := range page {
					if page[i].Seq > 3 {
						page[i].Seq--
					}
				}
			}
			return all
		}, []string{"record 3 ", "-0001"}},
		"records reordered": {func(all pages) pages {
			all[1][0], all[1][1] = all[1][1], all[1][0]
			return all
		}, []string{"-0002"}},
		"pages reordered": {func(all pages) pages { all[0], all[1] = all[1], all[0]; return all }, []string{"-0001"}},
		"a page put in its place": {func(all pages) pages { all[1] = slices.Clone(all[0]); return all },
			[]string{"-0002"}},
		"a record put in": {func(all pages) pages {
			more := all[2][0]
			more.Seq = 10
			all[2] = append(all[2], more)
			return all
		}, []string{"record 10 ", "-0003"}},
		"another plan": {func(all pages) pages {
			all[0][0].Data = json.RawMessage(`{"plan":"h2","theseus":"v0","steps":1}`)
			return all
		}, []string{"record 1 ", "-0001"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := newCluster(t)
			records := sample(2*perPage + 1)
			add(t, c, records...)
			all := pages{slices.Clone(records[:perPage]), slices.Clone(records[perPage : 2*perPage]),
				slices.Clone(records[2*perPage:])}
			inverse := *all[1][2].Inverse
			all[1][2].Inverse = &inverse
			rewrite(t, s, test.damage(all))
			_, err := takeOver(s).Records(t.Context())
			if !errors.Is(err, engine.ErrNeedsPerson) || engine.HintOf(err) == "" {
				t.Fatalf("not for a person, with a hint: %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

// rewrite puts records on the pages that are there.
func rewrite(t *testing.T, s *server, all [][]engine.Record) {
	t.Helper()
	client := s.Resource(pageResource).Namespace(v1alpha1.Namespace)
	for i, records := range all {
		text, err := json.Marshal(records)
		if err != nil {
			t.Fatal(err)
		}
		var raws []any
		if err := utiljson.Unmarshal(text, &raws); err != nil {
			t.Fatal(err)
		}
		page, err := client.Get(t.Context(), fmt.Sprintf("flannel-to-calico-1-%04d", i+1), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		page.Object["records"] = raws
		if _, err := client.Update(t.Context(), page, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestChainStrange: a field that this version does not know is not bound by the chain, and so refused.
func TestChainStrange(t *testing.T) {
	s, c := newCluster(t)
	add(t, c, sample(3)...)
	pages, err := c.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	records := pages[0].records
	records[1].(map[string]any)["note"] = "added"
	if err := patch(t.Context(), s, pageResource, pages[0].name, map[string]any{"records": records}); err != nil {
		t.Fatal(err)
	}
	if _, err := takeOver(s).Records(t.Context()); !errors.Is(err, engine.ErrNeedsPerson) ||
		!strings.Contains(err.Error(), "record 2") {
		t.Errorf("%v", err)
	}
}

// TestChainOlder: the journal of an older version, which has no chain, can be read, and nothing goes on with it.
func TestChainOlder(t *testing.T) {
	s, c := newCluster(t)
	records := sample(3)
	for i := range records {
		records[i].Chain = ""
	}
	add(t, c, records...)
	got, err := takeOver(s).Records(t.Context())
	if err != nil || len(got) != 3 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	if _, err := engine.Admit(&plan.Plan{Hash: "h1"}, got); !errors.Is(err, engine.ErrUnchained) ||
		engine.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}

// TestLoadComputes rewrites the plan in the cluster, with every text that says what it should be: its identity is
// computed.
func TestLoadComputes(t *testing.T) {
	for name, test := range map[string]struct {
		damage func(p *plan.Plan)
		hash   func(p *plan.Plan) string // that the Migration says
	}{
		"a step's title":          {func(p *plan.Plan) { p.Steps[0].Title = "other" }, nil},
		"a step's title and hash": {func(p *plan.Plan) { p.Steps[0].Title = "other"; p.Hash = plan.Hash(p) }, nil},
		"a step dropped":          {func(p *plan.Plan) { p.Steps = p.Steps[:1]; p.Hash = plan.Hash(p) }, plan.Hash},
		"no gate":                 {func(p *plan.Plan) { dropGates(p); p.Hash = plan.Hash(p) }, plan.Hash},
		"the hash of another": {func(p *plan.Plan) { p.Hash = "0000" },
			func(*plan.Plan) string { return "0000" }},
		"the plan of another's name": {func(p *plan.Plan) { p.Name = "other"; p.Hash = plan.Hash(p) }, plan.Hash},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := newServer(), samplePlan(t)
			if err := Create(t.Context(), s, p); err != nil {
				t.Fatal(err)
			}
			said := p.Hash
			test.damage(p)
			if test.hash != nil {
				said = test.hash(p)
			}
			plant(t, s, "flannel-to-calico-1", p, said)
			if _, _, err := Load(t.Context(), s, "flannel-to-calico-1"); !errors.Is(err, engine.ErrNeedsPerson) ||
				engine.HintOf(err) == "" {
				t.Errorf("not for a person, with a hint: %v", err)
			}
		})
	}
}

func dropGates(p *plan.Plan) {
	for i := range p.Steps {
		p.Steps[i].Gate = nil
	}
}

// plant puts a plan in the place of the one that a Migration has, with a digest that fits.
func plant(t *testing.T, s *server, name string, p *plan.Plan, hash string) {
	t.Helper()
	migration, err := get(t.Context(), s, name)
	if err != nil || len(migration.Spec.PlanPages) != 1 {
		t.Fatalf("%v, %v", migration, err)
	}
	packed, err := pack(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := patch(t.Context(), s, planPageResource, migration.Spec.PlanPages[0],
		map[string]any{"data": packed}); err != nil {
		t.Fatal(err)
	}
	spec := v1alpha1.MigrationSpec{PlanPages: migration.Spec.PlanPages, PlanDigest: digest(packed), PlanHash: hash}
	if err := patch(t.Context(), s, migrationResource, name, map[string]any{"spec": spec}); err != nil {
		t.Fatal(err)
	}
}

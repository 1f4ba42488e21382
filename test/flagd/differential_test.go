package flagd

import (
	"encoding/json"
	stdflag "flag"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/flags/flagset"
)

var evaluations = stdflag.Int("evaluations", 60_000, "how many are compared")

// TestDifferential asks the engine and flagd core the same questions, and expects the same answers.
func TestDifferential(t *testing.T) {
	compare(t, *evaluations, []string{"STATIC", "FALLBACK", "DEFAULT", "TARGETING_MATCH", "DISABLED",
		"ERRORFLAG_NOT_FOUND", "ERRORPARSE_ERROR", "ERRORTYPE_MISMATCH", "ERRORGENERAL", "refused"},
		func(g generator) question { return g.question(8, 3) })
}

// compare asks questions until so many evaluations were compared. Each outcome, a reason with the code of its error, or
// "refused" for a set, has to come up.
func compare(t *testing.T, evaluations int, outcomes []string, next func(generator) question) {
	t.Helper()
	ask := startOracle(t)
	seen := map[string]int{}
	compared := 0
	for seed := uint64(1); compared < evaluations; seed++ {
		q := next(newGenerator(seed))
		want := ask(q)
		got := evaluate(t, q)
		if want[0].Refused || got[0].Refused {
			if want[0].Refused != got[0].Refused {
				t.Fatalf("seed %d: flagd refuses the set: %v, the engine: %v\n%s",
					seed, want[0].Refused, got[0].Refused, q.Set)
			}
			seen["refused"]++
			continue
		}
		for i := range want {
			place := question{Set: q.Set, Contexts: []map[string]any{q.Contexts[i/(len(q.Keys)*len(q.Kinds))]},
				YAML: q.YAML, Keys: q.Keys[i/len(q.Kinds)%len(q.Keys):][:1], Kinds: q.Kinds[i%len(q.Kinds):][:1]}
			agree(t, seed, place, want[i], got[i])
			seen[want[i].Reason+want[i].Code]++
			compared++
		}
	}
	t.Logf("%d evaluations, 0 differences: %v", compared, seen)
	for _, outcome := range outcomes {
		if seen[outcome] < 10 {
			t.Errorf("%s came up %d times only: the questions are too narrow", outcome, seen[outcome])
		}
	}
}

func prepare(q question) (*flagset.Set, error) {
	format := flagset.JSON
	if q.YAML {
		format = flagset.YAML
	}
	return flagset.Parse("random", q.Set, format, flagset.Lenient)
}

// evaluate asks the engine. It goes through JSON, as the oracle's answers do.
func evaluate(t *testing.T, q question) []answer {
	set, err := prepare(q)
	if err != nil {
		return []answer{{Refused: true}}
	}
	now := time.Now().Unix()
	var answers []answer
	for _, values := range q.Contexts {
		context, err := flagset.NewContext(values)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range q.Keys {
			for _, kind := range q.Kinds {
				r := set.Evaluate(key, context, now).As(flagset.Kind(kind))
				answers = append(answers, answer{Value: r.Value, Variant: r.Variant, Reason: string(r.Reason),
					Code: string(r.Code), Metadata: r.Metadata})
			}
		}
	}
	raw, err := json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	answers = nil
	if err := json.Unmarshal(raw, &answers); err != nil {
		t.Fatal(err)
	}
	return answers
}

// agree compares one evaluation.
func agree(t *testing.T, seed uint64, q question, want, got answer) {
	t.Helper()
	if want.Reason == "FALLBACK" { // flagd's name for DEFAULT without a value, translated in its answers
		want.Reason, want.Value = "DEFAULT", nil
	}
	if want.Reason == "DISABLED" {
		want.Value = nil
	}
	if want.Code == "FLAG_NOT_FOUND" { // flagd's providers return the set's metadata, its evaluator nothing
		want.Metadata, got.Metadata = nil, nil
	}
	if q.Kinds[0] == "integer" && got.Code == string(flagset.TypeMismatch) && want.Code == "" && lossy(want, q) {
		return // flagd truncates, we do not
	}
	if difference := cmp.Diff(want, got); difference != "" {
		context, _ := json.Marshal(q.Contexts[0])
		text := string(q.Set)
		var set struct {
			Flags      map[string]json.RawMessage
			Evaluators json.RawMessage `json:"$evaluators"`
		}
		if json.Unmarshal(q.Set, &set) == nil {
			text = fmt.Sprintf("flag: %s\nevaluators: %s", set.Flags[q.Keys[0]], set.Evaluators)
		}
		t.Fatalf("seed %d, flag %q as %s (-flagd +engine):\n%s\n%s\ncontext: %s",
			seed, q.Keys[0], q.Kinds[0], difference, text, context)
	}
}

// lossy says that the variant is a number that is no integer of 53 bits.
func lossy(want answer, q question) bool {
	set, err := prepare(q)
	if err != nil {
		return false
	}
	variants, _, _ := set.Variants(q.Keys[0])
	n, ok := variants[want.Variant].(float64)
	return ok && (n != math.Trunc(n) || math.Abs(n) > 1<<53-1)
}

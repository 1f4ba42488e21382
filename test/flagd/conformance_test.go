package flagd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/cucumber/godog"

	"github.com/theseus-cni/theseus/internal/flags/flagset"
)

// testbedVariable names the folder of flagd-testbed where it is not next to the repository.
const testbedVariable = "FLAGD_TESTBED"

// TestConformance runs flagd-testbed's scenarios of the evaluator, all that the folder has.
func TestConformance(t *testing.T) {
	folder := testbed(t)
	set := parse(t, filepath.Join(folder, "evaluator", "flags", "testkit-flags.json"))
	run(t, set, "~@fractional-v1 && ~@fractional-v3", filepath.Join(folder, "evaluator", "gherkin"))
}

// TestProviderScenarios runs those scenarios of flagd-testbed's providers that are about evaluation.
func TestProviderScenarios(t *testing.T) {
	folder := testbed(t)
	all := map[string]any{}
	files, err := filepath.Glob(filepath.Join(folder, "flags", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		// Sets that are selected by name are not part of the whole.
		if !strings.HasPrefix(filepath.Base(file), "selector-") {
			gather(t, all, file)
		}
	}
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	set, err := flagset.Parse("allFlags.json", data, flagset.JSON, flagset.Lenient)
	if err != nil {
		t.Fatal(err)
	}
	var features []string
	for _, name := range []string{"disabled", "evaluation", "metadata", "targeting"} {
		features = append(features, filepath.Join(folder, "gherkin", name+".feature"))
	}
	run(t, set, "~@fractional-v1 && ~@fractional-v3 && ~@deprecated && @in-process", features...)
}

// gather puts a file's flags and shared rules next to those of other files, as the testbed does.
func gather(t *testing.T, all map[string]any, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var part map[string]any
	if err := json.Unmarshal(data, &part); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"flags", "$evaluators"} {
		values, _ := part[key].(map[string]any)
		if all[key] == nil {
			all[key] = map[string]any{}
		}
		maps.Copy(all[key].(map[string]any), values)
	}
}

// testbed is the folder of flagd-testbed. It is not copied into the repository: without it nothing is tested,
// which is said aloud.
func testbed(t *testing.T) string {
	t.Helper()
	folder := os.Getenv(testbedVariable)
	if folder == "" {
		folder = filepath.Join("..", "..", "..", "shared", "testdata", "flagd-testbed")
	}
	if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
		t.Skipf("\n\n*** NOT TESTED: conformance with flagd ***\n%v\n"+
			"put flagd-testbed v3.9.0 there, or set %s to its folder\n", err, testbedVariable)
	}
	return folder
}

func parse(t *testing.T, file string) *flagset.Set {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	set, err := flagset.Parse(file, data, flagset.JSON, flagset.Lenient)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// run runs features. Versions 1 and 3 of fractional are the bucketing of flagd before core 0.15, and one to come.
func run(t *testing.T, set *flagset.Set, tags string, features ...string) {
	t.Helper()
	scenarios := 0
	result := godog.TestSuite{
		ScenarioInitializer: func(scenario *godog.ScenarioContext) {
			scenarios++
			(&world{t: t, set: set}).steps(scenario)
		},
		Options: &godog.Options{Format: "progress", Output: io.Discard, Paths: features,
			TestingT: t, Strict: true, Tags: tags},
	}.Run()
	if result != 0 || scenarios == 0 {
		t.Fatalf("godog ends with %d after %d scenarios", result, scenarios)
	}
	t.Logf("%d scenarios passed", scenarios)
}

// world is one scenario.
type world struct {
	t        *testing.T
	set      *flagset.Set
	kind     flagset.Kind
	key      string
	fallback any
	context  map[string]any
	result   flagset.Result
	value    any
}

func (w *world) steps(scenario *godog.ScenarioContext) {
	w.context = map[string]any{}
	scenario.Step(`^(?:an evaluator|a (?:stable|metadata) flagd provider)$`, func() {})
	scenario.Step(`^an option "cache" of type "CacheType" with value "disabled"$`, func() {})
	scenario.Step(`^an option "selector" of type "String" with value "flags/allFlags.json"$`, func() {})
	scenario.Step(`^an option "selector" of type "String" with value "rawflags/([^"]*)"$`, func(file string) {
		w.set = parse(w.t, filepath.Join(testbed(w.t), "flags", file))
	})
	scenario.Step(
		`^an? (Boolean|String|Integer|Float|Object)-flag with key "([^"]*)" and a (?:fallback|default) value "(.*)"$`,
		w.flag)
	scenario.Step(`^a context containing a key "([^"]*)", with type "([^"]*)" and with value "(.*)"$`, w.attribute)
	scenario.Step(`^a context containing a targeting key with value "(.*)"$`, func(value string) {
		w.context["targetingKey"] = value
	})
	scenario.Step(
		`^a context containing a nested property with outer key "([^"]*)" and inner key "([^"]*)", with value "(.*)"$`,
		func(outer, inner, value string) { w.context[outer] = map[string]any{inner: value} })
	scenario.Step(`^the flag was evaluated with details$`, w.evaluate)
	scenario.Step(`^the resolved details value should be "(.*)"$`, w.hasValue)
	scenario.Step(`^the reason should be "([^"]*)"$`, func(reason string) error {
		return equal(flagset.Reason(reason), w.result.Reason)
	})
	scenario.Step(`^the error-code should be "([^"]*)"$`, func(code string) error {
		return equal(flagset.Code(code), w.result.Code)
	})
	scenario.Step(`^the variant should be "([^"]*)"$`, func(variant string) error {
		return equal(variant, w.result.Variant)
	})
	scenario.Step(`^the resolved metadata should contain$`, w.hasMetadata)
	scenario.Step(`^the resolved metadata is empty$`, func() error { return equal(0, len(w.result.Metadata)) })
}

func equal(want, got any) error {
	if !reflect.DeepEqual(want, got) {
		return fmt.Errorf("it is %#v, not %#v", got, want)
	}
	return nil
}

// typed reads a value as a feature writes it; those of contexts have a few types more than those of flags.
func typed(kind, text string) (any, error) {
	switch kind {
	case "Boolean":
		return strconv.ParseBool(text)
	case "String":
		return text, nil
	case "Integer", "Long":
		return strconv.ParseInt(text, 10, 64)
	case "Float", "Double", "Number":
		return strconv.ParseFloat(text, 64)
	case "Object":
		var object map[string]any
		err := json.Unmarshal([]byte(strings.ReplaceAll(text, `\"`, `"`)), &object)
		return object, err
	}
	return nil, fmt.Errorf("there is no type %q", kind)
}

func (w *world) flag(kind, key, fallback string) (err error) {
	w.kind, w.key = flagset.Kind(strings.ToLower(kind)), key
	w.fallback, err = typed(kind, fallback)
	return err
}

func (w *world) attribute(key, kind, text string) (err error) {
	w.context[key], err = typed(kind, text)
	return err
}

// evaluate fixes the time: no scenario asks for it.
func (w *world) evaluate(context.Context) error {
	values, err := flagset.NewContext(w.context)
	if err != nil {
		return err
	}
	w.result = w.set.Evaluate(w.key, values, 1_700_000_000).As(w.kind)
	w.value = w.result.Value
	if w.result.Default() {
		w.value = w.fallback
	}
	return nil
}

func (w *world) hasValue(text string) error {
	want, err := typed(strings.ToUpper(string(w.kind[:1]))+string(w.kind[1:]), text)
	if err != nil {
		return err
	}
	return equal(want, w.value)
}

func (w *world) hasMetadata(table *godog.Table) error {
	if len(table.Rows)-1 != len(w.result.Metadata) {
		return fmt.Errorf("there are %d, not %d: %v", len(w.result.Metadata), len(table.Rows)-1, w.result.Metadata)
	}
	for _, row := range table.Rows[1:] {
		want, err := typed(row.Cells[1].Value, row.Cells[2].Value)
		if err != nil {
			return err
		}
		if n, ok := want.(int64); ok {
			want = float64(n)
		}
		if err := equal(want, w.result.Metadata[row.Cells[0].Value]); err != nil {
			return fmt.Errorf("%s: %w", row.Cells[0].Value, err)
		}
	}
	return nil
}

package flagd

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/open-feature/flagd/core/pkg/evaluator"
	"github.com/open-feature/flagd/core/pkg/logger"
	"github.com/open-feature/flagd/core/pkg/store"
	"github.com/open-feature/flagd/core/pkg/sync"
	"github.com/open-feature/flagd/core/pkg/utils"
)

// oracleVariable makes this test binary the reference instead: its JsonLogic operators are global to a process.
const oracleVariable = "THESEUS_FLAGD_ORACLE"

func TestMain(m *testing.M) {
	if os.Getenv(oracleVariable) != "" {
		if err := serveOracle(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// question is a flag set and the contexts in which each of its flags is evaluated.
type question struct {
	Set      []byte           `json:"set"`
	YAML     bool             `json:"yaml"`
	Contexts []map[string]any `json:"contexts"`
	Keys     []string         `json:"keys"`
	Kinds    []string         `json:"kinds"`
}

// answer is what one evaluation says. Refused is set once when the set is refused.
type answer struct {
	Refused  bool           `json:"refused,omitempty"`
	Value    any            `json:"value"`
	Variant  string         `json:"variant"`
	Reason   string         `json:"reason"`
	Code     string         `json:"code"`
	Metadata map[string]any `json:"metadata"`
}

func serveOracle(in io.Reader, out io.Writer) error {
	questions := json.NewDecoder(bufio.NewReader(in))
	buffered := bufio.NewWriter(out)
	answers := json.NewEncoder(buffered)
	// One evaluator for all: making one compiles flagd's schema.
	e, err := newReference()
	if err != nil {
		return err
	}
	for {
		var q question
		if err := questions.Decode(&q); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := answers.Encode(ask(e, q)); err != nil {
			return err
		}
		if err := buffered.Flush(); err != nil {
			return err
		}
	}
}

// newReference makes flagd's evaluator.
func newReference() (*evaluator.JSON, error) {
	quiet := logger.NewLogger(nil, false)
	flags, err := store.NewStore(quiet, []string{"test"})
	if err != nil {
		return nil, err
	}
	return evaluator.NewJSON(quiet, flags), nil
}

// load puts a set in the place of the last one.
func load(e *evaluator.JSON, set []byte) error {
	return e.SetState(sync.DataSync{FlagData: string(set), Source: "test"})
}

func ask(e *evaluator.JSON, q question) []answer {
	set := string(q.Set)
	if q.YAML {
		var err error
		if set, err = utils.ConvertToJSON(q.Set, ".yaml", ""); err != nil {
			return []answer{{Refused: true}}
		}
	}
	if err := load(e, []byte(set)); err != nil {
		return []answer{{Refused: true}}
	}
	var answers []answer
	for _, values := range q.Contexts {
		for _, key := range q.Keys {
			for _, kind := range q.Kinds {
				answers = append(answers, resolve(e, key, kind, values))
			}
		}
	}
	return answers
}

func resolve(e *evaluator.JSON, key, kind string, values map[string]any) answer {
	ctx := context.Background()
	var a answer
	var err error
	switch kind {
	case "boolean":
		a.Value, a.Variant, a.Reason, a.Metadata, err = e.ResolveBooleanValue(ctx, "", key, values)
	case "string":
		a.Value, a.Variant, a.Reason, a.Metadata, err = e.ResolveStringValue(ctx, "", key, values)
	case "float":
		a.Value, a.Variant, a.Reason, a.Metadata, err = e.ResolveFloatValue(ctx, "", key, values)
	case "integer":
		a.Value, a.Variant, a.Reason, a.Metadata, err = e.ResolveIntValue(ctx, "", key, values)
	case "object":
		a.Value, a.Variant, a.Reason, a.Metadata, err = e.ResolveObjectValue(ctx, "", key, values)
	default:
		any := e.ResolveAsAnyValue(ctx, "", key, values)
		a.Value, a.Variant, a.Reason, a.Metadata, err = any.Value, any.Variant, any.Reason, any.Metadata, any.Error
	}
	if err != nil {
		a.Code, a.Value = err.Error(), nil
	}
	return a
}

// startOracle starts the reference in a process of its own; it ends with the test.
func startOracle(t *testing.T) func(question) []answer {
	t.Helper()
	oracle := exec.Command(os.Args[0])
	oracle.Env = append(os.Environ(), oracleVariable+"=1")
	oracle.Stderr = os.Stderr
	in, err := oracle.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := oracle.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := oracle.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := oracle.Wait(); err != nil {
			t.Errorf("the oracle: %v", err)
		}
	})
	questions, answers := json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
	return func(q question) []answer {
		if err := questions.Encode(q); err != nil {
			t.Fatal(err)
		}
		var a []answer
		if err := answers.Decode(&a); err != nil {
			t.Fatal(err)
		}
		return a
	}
}

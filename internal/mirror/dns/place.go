package dns

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Place is another place from which addresses are tested, such as a pod of the original: the command, as a list of
// words, that runs theseus there. It gets the arguments `mirror dns ask` and a Question on standard input, and writes
// an Answer.
type Place []string

func (p Place) String() string { return strings.Join(p, " ") }

// Question is the request to a place.
type Question struct {
	Probes []zone.Probe `json:"probes"`
	Ports  map[int]int  `json:"ports,omitempty"`
	// CA are root certificates (PEM), in addition to those of the place.
	CA string `json:"ca,omitempty"`
}

// Answer has the number of probes made, and a line for each failure.
type Answer struct {
	Asked  int      `json:"asked"`
	Failed []string `json:"failed"`
}

// placeHint is for a place where theseus does not run.
const placeHint = "run the command with `mirror dns ask --help` appended: it must run theseus in the place that " +
	"sends the requests, and pass standard input (kubectl exec -i)"

// ask has a place ask.
func (p Place) ask(ctx context.Context, q Question) ([]string, error) {
	data, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	var out, said bytes.Buffer
	command := exec.CommandContext(ctx, p[0], append(p[1:len(p):len(p)], "mirror", "dns", "ask")...)
	command.Stdin, command.Stdout, command.Stderr, command.WaitDelay = bytes.NewReader(data), &out, &said, 5*time.Second
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, engine.WithHint(fmt.Errorf("the command `%s` failed: %w: %s", p, err, firstLine(said.String())),
			placeHint)
	}
	var answer Answer
	err = strictly(&out, &answer)
	if err == nil && answer.Asked != len(q.Probes) {
		err = fmt.Errorf("it made %d of %d probes", answer.Asked, len(q.Probes))
	}
	if err != nil {
		return nil, engine.WithHint(fmt.Errorf("the answer of `%s` cannot be read: %w", p, err), placeHint)
	}
	return answer.Failed, nil
}

// Serve runs at a place: it reads a Question, sends the probes, and writes the Answer.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	var q Question
	err := strictly(in, &q)
	if err == nil && len(q.Probes) == 0 {
		err = errors.New("it asks nothing")
	}
	if err != nil {
		return engine.WithHint(fmt.Errorf("standard input is not a question: %w", err),
			"a zones file names this command under `from`; people do not run it")
	}
	p := &Prober{Ports: q.Ports}
	if q.CA != "" {
		if p.Roots, err = trusted([]byte(q.CA)); err != nil {
			return err
		}
	}
	answer := Answer{Asked: len(q.Probes), Failed: p.failures(ctx, q.Probes)}
	if err := ctx.Err(); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(answer)
}

// maxQuestion is how large a question, or its answer, may be: some 50,000 names.
const maxQuestion = 16 << 20

// strictly reads one document of fields that are known.
func strictly(in io.Reader, into any) error {
	decoder := json.NewDecoder(io.LimitReader(in, maxQuestion))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// trusted are the system's roots and those of a file.
func trusted(pem []byte) (*x509.CertPool, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, engine.WithHint(errors.New("it holds no certificate"), "write certificates in PEM into it")
	}
	return roots, nil
}

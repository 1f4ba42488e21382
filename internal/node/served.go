package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

const (
	// servedPatience is how long a program of a network may take to answer.
	servedPatience = 2 * time.Second
	// servedMost is how much of an answer is read: the report of a router in a large cluster has some MB.
	servedMost = 16 << 20
)

// served is what a program of a network served: numbers by the names that a Reading gives them.
type served struct {
	counters map[string]int64
	gauges   map[string]float64
}

// Served reads the numbers that programs of a network on this node serve. why says for each URL what was not read.
func Served(ctx context.Context, readings []step.Reading) (all served, why map[string]string) {
	all = served{map[string]int64{}, map[string]float64{}}
	why = map[string]string{}
	for _, reading := range readings {
		if missing := all.add(ctx, reading); missing != "" {
			why[reading.URL] = missing
		}
	}
	return all, why
}

// Counters are those that only grow, as Node.Counters has them.
func (s served) Counters() map[string]int64 { return s.counters }

// add reads one. It says what is missing.
func (s served) add(ctx context.Context, reading step.Reading) string {
	text, err := servedText(ctx, reading)
	if err != nil {
		return err.Error()
	}
	number := sampleOf(text)
	if reading.JSON {
		var document any
		if err := json.Unmarshal(text, &document); err != nil {
			return "its answer is not JSON"
		}
		number = func(path string) (float64, bool) { return numberAt(document, path) }
	}
	var missing []string
	for name, path := range reading.Counters {
		value, ok := number(path)
		if !ok || value < 0 || value >= math.MaxInt64 {
			missing = append(missing, path)
			continue
		}
		s.counters[name] = int64(value)
	}
	for name, path := range reading.Gauges {
		if value, ok := number(path); ok { // NaN as long as there is none: see sampleOf
			s.gauges[name] = value
		}
	}
	if len(missing) > 0 {
		return "it serves no " + strings.Join(missing, ", ")
	}
	return ""
}

// servedText gets what one serves. It follows no redirect, and asks only this node.
func servedText(ctx context.Context, reading step.Reading) ([]byte, error) {
	if err := reading.Local(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, servedPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, reading.URL, nil)
	if err != nil {
		return nil, err
	}
	if reading.JSON {
		request.Header.Set("Accept", "application/json")
	}
	client := http.Client{
		Transport:     &http.Transport{DialContext: (&net.Dialer{}).DialContext, DisableKeepAlives: true}, // no proxy
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(request)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, errors.New("connection refused")
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer within %s", servedPatience)
	case err != nil:
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New("it answers " + answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, servedMost+1))
	if err == nil && len(text) > servedMost {
		err = fmt.Errorf("its answer has more than %d MiB", servedMost>>20)
	}
	return text, err
}

// sampleOf finds samples in Prometheus' text format by their name with its labels, as it is written there. One that is
// no finite number is not there: so is a quantile of no observations.
func sampleOf(text []byte) func(sample string) (float64, bool) {
	return func(sample string) (float64, bool) {
		for line := range strings.Lines(string(text)) {
			rest, found := strings.CutPrefix(line, sample)
			fields := strings.Fields(rest)
			if !found || len(fields) == 0 || rest[0] != ' ' && rest[0] != '\t' {
				continue
			}
			value, err := strconv.ParseFloat(fields[0], 64)
			return value, err == nil && !math.IsNaN(value) && !math.IsInf(value, 0)
		}
		return 0, false
	}
}

// numberAt finds a number in a JSON document by the names of its fields, joined by dots.
func numberAt(document any, path string) (float64, bool) {
	for _, name := range strings.Split(path, ".") {
		fields, ok := document.(map[string]any)
		if !ok {
			return 0, false
		}
		document = fields[name]
	}
	value, ok := document.(float64)
	return value, ok
}

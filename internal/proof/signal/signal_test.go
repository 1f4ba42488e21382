package signal

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"http://p:9090 sum(rate(errors[1m])) < 0.01": "sum(rate(errors[1m])) must be < 0.01, asked at http://p:9090",
		" https://p/prom?tenant=a   up{job=\"a b\"}>=1 ": "up{job=\"a b\"} must be >= 1, " +
			"asked at https://p/prom?tenant=a",
		"http://p a / b != -1.5e-3": "a / b must be != -0.0015, asked at http://p",
		"http://p a < 1 or b > .5":  "a < 1 or b must be > 0.5, asked at http://p",
		"http://p a == 3.":          "a must be == 3, asked at http://p",
		"http://p a<=2":             "a must be <= 2, asked at http://p",
		"https://shop.example.org/healthz?deep=1": "https://shop.example.org/healthz?deep=1 must answer " +
			"with an HTTP status of 200 to 299",
		"command: /opt/check.sh --zone 'a b'": "the command /opt/check.sh --zone 'a b' must end with exit code 0",
		"command: check.sh":                   "the command check.sh must end with exit code 0",
		"https://shop.example.org/?time=1": "https://shop.example.org/?time=1 must answer with " +
			"an HTTP status of 200 to 299",
		"http://p http_requests_total{code=\"<5\"} offset < 9": "http_requests_total{code=\"<5\"} offset " +
			"must be < 9, asked at http://p",
	} {
		one, err := Parse(text)
		if err != nil || one.Demand() != want || one.String() != strings.TrimSpace(text) {
			t.Errorf("%q: %q, %v", text, one.Demand(), err)
		}
	}
	for text, want := range map[string]string{
		"":                                               "it is empty",
		"sum(errors) < 1":                                "has no address",
		"http://p sum(errors)":                           "does not end with a comparison",
		"http://p sum(errors) <":                         "does not end with a comparison",
		"http://p errors < 1%":                           "does not end with a comparison",
		"http://p errors < NaN":                          "does not end with a comparison",
		"http://p errors < 1e999":                        "out of the range of numbers",
		"http://p < 1":                                   "does not end with a comparison",
		"http:// errors < 1":                             "names no host",
		"http://:9090 a < 1":                             "names no host",
		"http://u:secret@p a < 1":                        "holds credentials",
		"http://p/%zz a < 1":                             "is not a URL",
		"http://p#x":                                     "has a fragment",
		"ftp://p a < 1":                                  "has no address",
		"http://u:secret@ a < 1":                         "holds credentials",
		"http://u:secret@p#x":                            "holds credentials",
		"http://p/?access_token=secret a < 1":            "holds credentials",
		"https://p/healthz?TOKEN=secret":                 "holds credentials",
		"https://p/healthz?a=1&api_key=secret":           "holds credentials",
		"https://p/healthz?x-goog-signature=s":           "holds credentials",
		"https://p/?a;b=secret":                          "cannot be read",
		"http://p?time=1700000000 a < 1":                 "sets time, which Theseus sets itself",
		"http://p?Query=up a < 1":                        "sets query",
		"http://p?lookback_delta=1h a < 1":               "sets lookback_delta",
		"command: ./check.sh":                            "has a relative path",
		"command: bin/check.sh":                          "has a relative path",
		"command:":                                       "names no program",
		"command: 'a":                                    "not closed",
		"http://p a\n< 1":                                "cannot be printed",
		"http://p " + strings.Repeat("a", 3000) + " < 1": "it has 3013 bytes",
	} {
		if one, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%.60q: %+v, %v, want %q", text, one, err, want)
		}
	}
}

func TestParseAll(t *testing.T) {
	if _, err := ParseAll([]string{"http://a", " http://a "}); err == nil ||
		err.Error() != "signal 2 of 2: it is the same as signal 1" {
		t.Error(err)
	}
	for _, text := range []string{"http://u:secret@p a < 1", "http://u:secret@ a", "http://p/%zz?k=secret",
		"https://p?password=secret", "http://p#secret"} {
		if _, err := ParseAll([]string{"http://a", text}); err == nil ||
			!strings.HasPrefix(err.Error(), "signal 2 of 2: ") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", text, err)
		}
	}
	many := make([]string, v1alpha1.MaxSLO+1)
	for i := range many {
		many[i] = fmt.Sprintf("http://a/%d", i)
	}
	if _, err := ParseAll(many); err == nil || !strings.Contains(err.Error(), "at most 20") {
		t.Error(err)
	}
	if all, err := ParseAll(many[1:]); err != nil || len(all) != v1alpha1.MaxSLO {
		t.Errorf("%d, %v", len(all), err)
	}
}

// TestAbsolute: a plan does not depend on the directory that it runs in.
func TestAbsolute(t *testing.T) {
	for text, want := range map[string]string{
		"command: ./check.sh a": "command: /home/me/check.sh a", " command:../b/c 'd e'": "command: /home/b/c 'd e'",
		"command: '/x y/z' a": "command: '/x y/z' a", "command: check.sh": "command: check.sh",
		"http://p a / b < 1": "http://p a / b < 1", "command: 'a": "command: 'a", "command:": "command:",
	} {
		if got := Absolute("/home/me", text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestNoAnswer: for a check and a command, no answer is a failure; for a query, it says nothing.
func TestNoAnswer(t *testing.T) {
	for text, want := range map[string]Answer{
		"https://a/b?c=d": {State: Fails, Says: "https://a/b: no answer: refused"},
		"command: x":      {State: Fails, Says: "the command x: no answer: refused"},
		"http://p a < 1":  {State: Unknown, Says: "no answer to a: refused"},
	} {
		if got := must(t, text).NoAnswer(errors.New("refused")); got.State != want.State || got.Says != want.Says {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestAt(t *testing.T) {
	for text, want := range map[string]string{" a < 1": "http://p a < 1", "https://q a < 1": "https://q a < 1",
		"command: x": "command: x", "": ""} {
		if got := At("http://p", text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := At("", "a < 1"); got != "a < 1" {
		t.Error(got)
	}
}

func must(t *testing.T, text string) Signal {
	t.Helper()
	one, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return one
}

// TestMeasured: every series must be as demanded, and no series is no measurement.
func TestMeasured(t *testing.T) {
	for _, test := range []struct {
		compare string
		values  []float64
		state   State
		says    string
	}{
		{"< 0.5", []float64{0.1, 0.4}, Holds, "a is 0.1 to 0.4"},
		{"< 0.5", []float64{0.1, 0.5, 0.7}, Fails, "a is 0.5 to 0.7 in 2 of 3 series, and must be < 0.5"},
		{"<= 0.5", []float64{0.5}, Holds, "a is 0.5"},
		{"> 1", []float64{2, 1}, Fails, "a is 1 in 1 of 2 series, and must be > 1"},
		{">= 1", []float64{1}, Holds, "a is 1"},
		{"== 3", []float64{3, 3}, Holds, "a is 3"},
		{"== 3", []float64{4}, Fails, "a is 4, and must be == 3"},
		{"!= 0", []float64{0}, Fails, "a is 0, and must be != 0"},
		{"< 1", nil, Unknown, "no answer to a: the query yields no data"},
	} {
		if got := must(t, "http://p a "+test.compare).Measured(test.values); got.State != test.state ||
			got.Says != test.says {
			t.Errorf("%v %s: %+v", test.values, test.compare, got)
		}
	}
}

func TestReadAnswer(t *testing.T) {
	for body, want := range map[string]string{
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"0.25"]}]}}`:                              "[0.25]",
		`{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"0.1"]},{"value":[1,"-5e-1"]}]}}`:                     "[0.1 -0.5]",
		`{"status":"success","data":{"resultType":"scalar","result":[1,"0.75"]}}`:                                                      "[0.75]",
		`{"status":"success","data":{"resultType":"vector","result":[]}}`:                                                              "the query yields no data",
		`{"status":"success","data":{"resultType":"vector","result":null}}`:                                                            "the query yields no data",
		`{"status":"success","data":{"resultType":"matrix","result":[]}}`:                                                              "a scalar or a vector is needed",
		`{"status":"success","warnings":["partial response: store a is away"],"data":{"resultType":"scalar","result":[1,"0"]}}`:        "may be partial: partial response: store a is away",
		`{"status":"success","warnings":["PromQL info: not a counter"],"infos":["a"],"data":{"resultType":"scalar","result":[1,"0"]}}`: "[0]",
		`{"status":"success","data":{"resultType":"scalar","result":[50,"0"]}}`:                                                        "[0]",
		`{"status":"success","data":{"resultType":"scalar","result":[-70,"0"]}}`:                                                       "its time differs from this machine's by 71 s",
		`{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"0"]},{"value":[1e300,"0"]}]}}`:                       "from this machine's",
		`{"status":"success","data":{"resultType":"vector","result":[{"value":["1","0"]}]}}`:                                           "from this machine's",
		`{"status":"success","data":{"resultType":"string","result":[1,"a"]}}`:                                                         "a scalar or a vector is needed",
		`{"status":"success","data":{"resultType":"vector","result":[{"histogram":[1,{}]}]}}`:                                          "from this machine's",
		`{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"1"]},{"value":[1,"NaN"]}]}}`:                         `"NaN", which is not a measurement`,
		`{"status":"success","data":{"resultType":"scalar","result":[1,"+Inf"]}}`:                                                      "not a measurement",
		`{"status":"success","data":{"resultType":"scalar","result":[1,2]}}`:                                                           "not a measurement",
		`{"status":"success","data":{"resultType":"scalar"}}`:                                                                          "its result cannot be read",
		`{"status":"success","data":{"resultType":"vector","result":{"a":1}}}`:                                                         "its result cannot be read",
		`{"status":"success"}`:                     "a scalar or a vector is needed",
		`{"status":"error","error":"parse error"}`: "the query fails: parse error",
		`{}`:                   "it has no status",
		`null`:                 "it has no status",
		`[1]`:                  "not JSON of a Prometheus",
		`<html>sign in</html>`: "not JSON of a Prometheus",
		``:                     "not JSON of a Prometheus",
	} {
		values, err := ReadAnswer([]byte(body), time.Unix(1, 0))
		if got := fmt.Sprint(values); err != nil && !strings.Contains(err.Error(), want) || err == nil && got != want {
			t.Errorf("%.80s: %s, %v, want %q", body, got, err, want)
		}
	}
}

func TestWorst(t *testing.T) {
	holds, unknown, fails := Answer{State: Holds}, Answer{State: Unknown}, Answer{State: Fails}
	for _, test := range []struct {
		answers []Answer
		want    State
	}{
		{nil, Unknown}, {[]Answer{holds, holds}, Holds}, {[]Answer{holds, unknown}, Unknown},
		{[]Answer{fails, unknown}, Fails},
		{[]Answer{unknown, holds, fails}, Fails},
	} {
		if got := Worst(test.answers); got != test.want {
			t.Errorf("%v: %s", test.answers, got)
		}
	}
	if got := Not([]Answer{holds, unknown, fails}); !slices.Equal(got, []Answer{fails, unknown}) {
		t.Error(got)
	}
	long := must(t, "http://p a < 1").Silent(errors.New("\x1b[31m" + strings.Repeat("ü", 1000)))
	if long.State != Unknown || strings.Contains(long.Says, "\x1b") || len([]rune(long.Says)) > 330 {
		t.Errorf("%d: %.60q", len(long.Says), long.Says)
	}
}

// FuzzParse: what is read once is read again alike, and says what it demands in one line.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"http://p:9090 sum(rate(errors[1m])) < 0.01",
		"https://a/b?c=d", "command: sh -c 'exit 1'", "http://p a < 1 or b > -.5e3", "http://p a=<2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		one, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(one.String())
		if err != nil || again.Demand() != one.Demand() || strings.ContainsAny(one.Demand(), "\n\x1b") {
			t.Errorf("%q: %q, then %q, %v", text, one.Demand(), again.Demand(), err)
		}
		if (one.Query != "") != (one.Compare != "") || (one.Address == "") != (len(one.Command) > 0) {
			t.Errorf("%q: %+v", text, one)
		}
	})
}

// FuzzReadAnswer: whatever a server answers, a signal holds only by finite numbers.
func FuzzReadAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"0.1"]},{"value":[1,"NaN"]}]}}`,
		`{"status":"success","data":{"resultType":"scalar","result":[1,"0.75"]}}`, `{"status":"error"}`, `[`} {
		f.Add([]byte(seed))
	}
	always := Signal{Query: "a", Compare: "!=", Bound: 0.123, text: "t"}
	f.Fuzz(func(t *testing.T, body []byte) {
		values, err := ReadAnswer(body, time.Unix(1, 0))
		if (err == nil) != (len(values) > 0) {
			t.Errorf("%q: %v, %v", body, values, err)
		}
		for _, value := range values {
			if value-value != 0 {
				t.Errorf("%q: %v", body, value)
			}
		}
		if got := always.Measured(values); err != nil && got.State != Unknown {
			t.Errorf("%q: %+v", body, got)
		}
	})
}

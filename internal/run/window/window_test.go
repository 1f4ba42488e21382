package window

import (
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

func set(t *testing.T, texts ...string) Set {
	t.Helper()
	var all []v1alpha1.Window
	for _, text := range texts {
		one, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	s, err := Of(all)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	moment, err := time.Parse("2006-01-02 15:04 -0700", text)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

// TestAdmits: whether a step may begin, until when the windows stay open, and when the next one opens. In Berlin, the
// clock goes from 02:00 to 03:00 on Sunday 2026-03-29, and from 03:00 to 02:00 on Sunday 2026-10-25.
func TestAdmits(t *testing.T) {
	nights := []string{"Tue,Thu 22:00-05:00 Europe/Berlin"}
	for _, test := range []struct {
		name    string
		windows []string
		now     string
		takes   time.Duration
		ok      bool
		until   string // "" if no window is open
		next    string // "" if none follows
	}{
		{"no windows", nil, "2026-11-24 12:00 +0000", time.Hour, true, "", ""},
		{"before one", nights, "2026-11-24 21:59 +0100", 0, false, "", "Tue 2026-11-24 22:00 CET (Europe/Berlin)"},
		{"as it opens", nights, "2026-11-24 22:00 +0100", 0, true, "Wed 2026-11-25 05:00 CET (Europe/Berlin)",
			"Thu 2026-11-26 22:00 CET (Europe/Berlin)"},
		{"after midnight", nights, "2026-11-25 04:59 +0100", 0, true, "Wed 2026-11-25 05:00 CET (Europe/Berlin)",
			"Thu 2026-11-26 22:00 CET (Europe/Berlin)"},
		{"as it closes", nights, "2026-11-25 05:00 +0100", 0, false, "", "Thu 2026-11-26 22:00 CET (Europe/Berlin)"},
		{"elsewhere on the earth", nights, "2026-11-24 13:30 -0800", 0, true,
			"Wed 2026-11-25 05:00 CET (Europe/Berlin)", "Thu 2026-11-26 22:00 CET (Europe/Berlin)"},
		{"the day before does not count", nights, "2026-11-24 01:00 +0100", 0, false, "",
			"Tue 2026-11-24 22:00 CET (Europe/Berlin)"},
		{"a step that fits", nights, "2026-11-25 04:50 +0100", 10 * time.Minute, true,
			"Wed 2026-11-25 05:00 CET (Europe/Berlin)", "Thu 2026-11-26 22:00 CET (Europe/Berlin)"},
		{"a step that does not fit", nights, "2026-11-25 04:51 +0100", 10 * time.Minute, false,
			"Wed 2026-11-25 05:00 CET (Europe/Berlin)", "Thu 2026-11-26 22:00 CET (Europe/Berlin)"},
		{"a step that fits into no window", nights, "2026-11-25 04:51 +0100", 8 * time.Hour, false,
			"Wed 2026-11-25 05:00 CET (Europe/Berlin)", ""},
		{"two that touch are one", []string{"Tue 20:00-24:00 UTC", "Wed 00:00-03:00 UTC"}, "2026-11-24 23:30 +0000",
			time.Hour, true, "Wed 2026-11-25 03:00 UTC", "Tue 2026-12-01 20:00 UTC"},
		{"two that touch in two zones", []string{"Tue 20:00-24:00 UTC", "Wed 01:00-03:00 Europe/Berlin"},
			"2026-11-24 23:30 +0000", 2 * time.Hour, true, "Wed 2026-11-25 03:00 CET (Europe/Berlin)",
			"Tue 2026-12-01 20:00 UTC"},
		{"two that overlap", []string{"Tue 20:00-22:00 UTC", "Tue 21:00-21:30 UTC"}, "2026-11-24 21:15 +0000", 0, true,
			"Tue 2026-11-24 22:00 UTC", "Tue 2026-12-01 20:00 UTC"},
		{"the longer one is waited for", []string{"Tue 20:00-21:00 UTC", "Sat 00:00-24:00 UTC"},
			"2026-11-24 12:00 +0000", 2 * time.Hour, false, "", "Sat 2026-11-28 00:00 UTC"},
		{"over the end of the week", []string{"Sat 22:00-05:00 UTC"}, "2026-11-29 04:00 +0000", 0, true,
			"Sun 2026-11-29 05:00 UTC", "Sat 2026-12-05 22:00 UTC"},
		{"a week away", []string{"Sun 01:00-02:00 UTC"}, "2026-11-29 02:00 +0000", 0, false,
			"", "Sun 2026-12-06 01:00 UTC"},
		{"over the end of the year", []string{"Thu 22:00-05:00 UTC"}, "2027-01-01 01:00 +0000", 0, true,
			"Fri 2027-01-01 05:00 UTC", "Thu 2027-01-07 22:00 UTC"},
		{"a weekend", []string{"Sat-Sun 00:00-24:00 UTC"}, "2026-11-28 12:00 +0000", 30 * time.Hour, true,
			"Mon 2026-11-30 00:00 UTC", "Sat 2026-12-05 00:00 UTC"},
		{"every day, all day", []string{"00:00-24:00 UTC"}, "2026-11-28 12:00 +0000", 30 * time.Hour, true,
			"Mon 2026-12-07 00:00 UTC", ""},

		{"forward: the night is an hour shorter", []string{"Sat 22:00-05:00 Europe/Berlin"},
			"2026-03-28 22:00 +0100", 6 * time.Hour, true, "Sun 2026-03-29 05:00 CEST (Europe/Berlin)",
			"Sat 2026-04-04 22:00 CEST (Europe/Berlin)"},
		{"forward: seven hours do not fit", []string{"Sat 22:00-05:00 Europe/Berlin"},
			"2026-03-28 22:00 +0100", 7 * time.Hour, false, "Sun 2026-03-29 05:00 CEST (Europe/Berlin)",
			"Sat 2026-04-04 22:00 CEST (Europe/Berlin)"},
		{"forward: it opens in the hour that is skipped", []string{"Sun 02:30-04:00 Europe/Berlin"},
			"2026-03-29 01:59 +0100", 0, false, "", "Sun 2026-03-29 03:00 CEST (Europe/Berlin)"},
		{"forward: it closes in the hour that is skipped", []string{"Sun 01:00-02:30 Europe/Berlin"},
			"2026-03-29 01:59 +0100", 0, true, "Sun 2026-03-29 03:00 CEST (Europe/Berlin)",
			"Sun 2026-04-05 01:00 CEST (Europe/Berlin)"},
		{"forward: it is skipped altogether", []string{"Sun 02:15-02:45 Europe/Berlin"}, "2026-03-29 00:00 +0100", 0,
			false, "", "Sun 2026-04-05 02:15 CEST (Europe/Berlin)"},
		{"back: the night is an hour longer", []string{"Sat 22:00-05:00 Europe/Berlin"}, "2026-10-24 22:00 +0200",
			8 * time.Hour, true, "Sun 2026-10-25 05:00 CET (Europe/Berlin)", ""},
		{"back: it opens at the first of both", []string{"Sun 02:30-04:00 Europe/Berlin"}, "2026-10-25 02:30 +0200",
			150 * time.Minute, true, "Sun 2026-10-25 04:00 CET (Europe/Berlin)", ""},
		{"back: it closes at the first of both", []string{"Sun 01:00-02:30 Europe/Berlin"}, "2026-10-25 02:29 +0200", 0,
			true, "Sun 2026-10-25 02:30 CEST (Europe/Berlin)", "Sun 2026-11-01 01:00 CET (Europe/Berlin)"},
		{"back: it does not open again", []string{"Sun 01:00-02:30 Europe/Berlin"}, "2026-10-25 02:15 +0100", 0, false,
			"", "Sun 2026-11-01 01:00 CET (Europe/Berlin)"},
		{"back: next is by the clock of winter", nights, "2026-10-24 12:00 +0200", 0, false, "",
			"Tue 2026-10-27 22:00 CET (Europe/Berlin)"},
		{"a zone that skips midnight", []string{"00:00-02:00 Africa/Cairo"}, "2026-04-23 23:59 +0200", 0, false, "",
			"Fri 2026-04-24 01:00 EEST (Africa/Cairo)"},
	} {
		ok, until, next := set(t, test.windows...).Admits(at(t, test.now), test.takes)
		said := func(moment time.Time) string {
			if moment.IsZero() {
				return ""
			}
			return Time(moment)
		}
		if ok != test.ok || said(until) != test.until || said(next.From) != test.next {
			t.Errorf("%s: %t until %q, next %q; want %t until %q, next %q",
				test.name, ok, said(until), said(next.From), test.ok, test.until, test.next)
		}
	}
}

// TestAgainstClock: a window that no change of clocks touches is open exactly when the clock on the wall says so.
func TestAgainstClock(t *testing.T) {
	const text = "Mon-Wed,Sat 22:15-04:45 America/New_York"
	windows := set(t, text)
	zone := windows[0].zone
	for now := at(t, "2026-02-25 00:00 +0000"); now.Before(at(t,
		"2026-04-01 00:00 +0000")); now = now.Add(5 * time.Minute) {
		local := now.In(zone)
		of := local
		if local.Hour() < 12 {
			of = local.AddDate(0, 0, -1)
		}
		shown := 60*local.Hour() + local.Minute()
		want := strings.Contains("Mon Tue Wed Sat", of.Format("Mon")) && (shown >= 22*60+15 || shown < 4*60+45)
		if ok, _, _ := windows.Admits(now, 0); ok != want {
			t.Fatalf("%s: %t at %s", text, ok, Time(local))
		}
	}
}

// TestParse: a window is written as it was read, and what is wrong with one is said.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"Tue,Thu 22:00-05:00 Europe/Berlin": "Tue,Thu 22:00-05:00 Europe/Berlin",
		"Mon-Wed 09:00-17:00 UTC":           "Mon,Tue,Wed 09:00-17:00 UTC",
		"Fri-Mon,Sun 00:00-24:00  UTC":      "Fri,Sat,Sun,Mon 00:00-24:00 UTC",
		"22:00-05:00 Asia/Kolkata":          "22:00-05:00 Asia/Kolkata",
	} {
		if got, err := Parse(text); err != nil || Text(got) != want {
			t.Errorf("%s: %s, %v", text, Text(got), err)
		}
	}
	for text, says := range map[string]string{
		"":                                "it is not of the form",
		"22:00-05:00":                     "it is not of the form",
		"Tue 22:00 05:00 UTC":             "it is not of the form",
		"Di 22:00-05:00 UTC":              `unknown day in "Di"`,
		"Mon-Die 22:00-05:00 UTC":         `unknown day in "Mon-Die"`,
		"22:00-25:00 UTC":                 `"25:00" is not a time`,
		"9:00-17:00 UTC":                  `"9:00" is not a time`,
		"24:00-05:00 UTC":                 "write 00:00 of the next day",
		"22:00-22:00 UTC":                 "a whole day is 00:00-24:00",
		"22:00-05:00 Europe/Belin":        `unknown time zone "Europe/Belin"`,
		"22:00-05:00 ../../etc/localtime": "unknown time zone",
		"22:00-05:00 Local":               "it needs a time zone by its IANA name",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
	if _, err := Of([]v1alpha1.Window{{From: "00:00", To: "24:00", TimeZone: "UTC"},
		{From: "22:00", To: "05:00", TimeZone: "Mars"}}); err == nil ||
		!strings.Contains(err.Error(), `window 2 (22:00-05:00 Mars): unknown time zone "Mars"`) {
		t.Error(err)
	}
	if _, err := Of(make([]v1alpha1.Window, v1alpha1.MaxWindows+1)); err == nil {
		t.Error("too many windows are taken")
	}
}

// TestClosed: what a person reads while a migration waits for a window.
func TestClosed(t *testing.T) {
	for _, test := range []struct {
		now   string
		takes time.Duration
		want  string
	}{
		{"2026-11-24 22:00 +0000", time.Minute, ""},
		{"2026-11-24 12:00 +0000", time.Minute,
			"outside of its windows; the next window opens Tue 2026-11-24 22:00 UTC"},
		{"2026-11-24 22:55 +0000", 12 * time.Minute, "the next step takes about 12 min, and the window closes Tue " +
			"2026-11-24 23:00 UTC; the next window opens Wed 2026-11-25 22:00 UTC"},
		{"2026-11-24 12:00 +0000", 2 * time.Hour, "outside of its windows; the next window that is long enough for " +
			"the next step (about 2 h) opens Sat 2026-11-28 00:00 UTC"},
	} {
		got, err := set(t, "22:00-23:00 UTC", "Sat 00:00-05:00 UTC").Closed(at(t, test.now), test.takes)
		if err != nil || got != test.want {
			t.Errorf("%s: %q, want %q; %v", test.now, got, test.want, err)
		}
	}
	if got, err := set(t, "22:00-23:00 UTC").Closed(at(t, "2026-11-24 22:00 +0000"), 2*time.Hour); err == nil ||
		!strings.Contains(err.Error(), "no window is long enough for the next step, which takes about 2 h") {
		t.Errorf("%q, %v", got, err)
	}
}

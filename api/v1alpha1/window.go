package v1alpha1

// Window is a time of the week, by the clock of a time zone, in which steps of a migration may begin.
type Window struct {
	// Days are the days on which the window opens: Mon, Tue, Wed, Thu, Fri, Sat, Sun. Empty means every day.
	Days []string `json:"days,omitempty"`
	// From is when it opens, as HH:MM.
	From string `json:"from"`
	// To is when it closes, as HH:MM or 24:00; on the next day if it is before From.
	To string `json:"to"`
	// TimeZone is an IANA name, such as Europe/Berlin.
	TimeZone string `json:"timeZone"`
}

// MaxWindows is how many windows a migration may have.
const MaxWindows = 50

// AnnotationFreeze on the namespace of Theseus' own objects pauses all migrations, except rollbacks, before their next
// step. Its value is the reason.
const AnnotationFreeze = "theseus.dev/freeze"

package policy

// Probe is a connection to try, and the differences (by index) that its verdict shows.
type Probe struct {
	Witness
	Shows []int
}

// Probes returns connections whose verdicts show every difference. Finding the smallest set is a set cover problem,
// which is NP-hard; this is the greedy solution, at most 1+ln(differences) times as large, from a few candidates for
// each region that differs.
func (m *Model) Probes() []Probe {
	m.compare()
	widest := 0
	for i := range m.candidates {
		widest = max(widest, len(m.candidates[i].Shows))
	}
	// A probe waits in the row of as many differences as it was last seen to add.
	rows := make([][]int, widest+1)
	for i := range m.candidates {
		n := len(m.candidates[i].Shows)
		rows[n] = append(rows[n], i)
	}
	shown := make([]bool, len(m.differences))
	var chosen []Probe
	for n := widest; n > 0; n-- {
		for _, i := range rows[n] {
			adds := 0
			for _, d := range m.candidates[i].Shows {
				if !shown[d] {
					adds++
				}
			}
			if adds < n {
				rows[adds] = append(rows[adds], i)
				continue
			}
			for _, d := range m.candidates[i].Shows {
				shown[d] = true
			}
			chosen = append(chosen, m.candidates[i])
		}
	}
	return chosen
}

package loss

import "github.com/theseus-cni/theseus/api/v1alpha1"

// Baseline is the part of reports that later reports are counted from (NewAccount, Evidence.Since). It is small enough
// to be kept.
func Baseline(reports []v1alpha1.ProbeReport) []v1alpha1.ProbeReport {
	kept := make([]v1alpha1.ProbeReport, len(reports))
	for i, report := range reports {
		kept[i].Name = report.Name
		kept[i].Status = v1alpha1.ProbeReportStatus{Generation: report.Status.Generation,
			Seq: report.Status.Seq, At: report.Status.At}
		for _, r := range report.Status.Paths {
			kept[i].Status.Paths = append(kept[i].Status.Paths,
				v1alpha1.PathResult{ID: r.ID, Sent: r.Sent, Answered: r.Answered, Excused: r.Excused,
					Since: r.Since, Last: r.Last, Open: r.Open, Dropped: r.Dropped})
		}
		for _, part := range report.Status.Parts {
			kept[i].Status.Parts = append(kept[i].Status.Parts,
				v1alpha1.Part{Name: part.Name, Pod: part.Pod, Since: part.Since})
		}
	}
	return kept
}

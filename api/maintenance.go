package api

import (
	"net/http"
	"time"
)

// MaintenanceList is the response of /v1/maintenance.
type MaintenanceList struct {
	Maintenances []Maintenance `json:"maintenances"` // sorted by From and Name
}

// Maintenance is a configured period in which nothing is done about some targets. See Target.Pause.
type Maintenance struct {
	Name    string    `json:"name"`
	Active  bool      `json:"active"` // it has begun; otherwise it is the next one
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Reason  string    `json:"reason,omitempty"`
	Targets int       `json:"targets"` // number of targets under it, without those under another one that ends later; 0 unless it is active
}

// maintenance serves /v1/maintenance.
func (s *Server) maintenance(http.ResponseWriter, *http.Request) (any, error) {
	list := MaintenanceList{Maintenances: []Maintenance{}}
	if s.config.Maintenances != nil {
		for _, m := range s.config.Maintenances() {
			m.From, m.To = utc(m.From), utc(m.To)
			list.Maintenances = append(list.Maintenances, m)
		}
	}
	return list, nil
}

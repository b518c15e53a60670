//! The tables and scalars of RMON-MIB (RFC 2819), RMON2-MIB (RFC 4502), HC-RMON-MIB (RFC 3273) and SMON-MIB (RFC 2613)
//! that are there, in the order of their identifiers, with the defaults of control rows. Columns that are only parts of
//! indexes are left out.

use crate::control::Control;
use crate::mib::{Access, Column, Default, Rows, Syntax, Table};
use crate::rows;

use Access::{Create, Read, Write};
use Syntax::{Counter32, Counter64, Gauge32, Integer, Octets, Oid, RowStatus, TimeTicks};

/// The groups, below [`crate::mib::RMON`].
pub(crate) static GROUPS: &[u32] = &[11, 12, 13, 14, 15, 16, 17, 19];

const fn col(number: u32, name: &'static str, syntax: Syntax, access: Access) -> Column {
    Column::new(number, name, syntax, access)
}

pub(crate) static TABLES: &[Table] = &[
    // 11
    Table::new(
        &[11],
        Rows::Scalars(rows::directory_scalars),
        &[col(1, "protocolDirLastChange", TimeTicks, Read)],
    ),
    // protocolDirEntry
    Table::new(
        &[11, 2, 1],
        Rows::Control(Control::Directory),
        &[
            col(3, "protocolDirLocalIndex", Integer(1, i32::MAX), Read),
            col(4, "protocolDirDescr", Octets(1, 64), Create)
                .or(Default::Text(""))
                .live(),
            col(5, "protocolDirType", Octets(0, 1), Read),
            col(6, "protocolDirAddressMapConfig", Integer(1, 3), Create)
                .or(Default::Integer(0))
                .live(),
            col(7, "protocolDirHostConfig", Integer(1, 3), Create)
                .or(Default::Integer(0))
                .live(),
            col(8, "protocolDirMatrixConfig", Integer(1, 3), Create)
                .or(Default::Integer(0))
                .live(),
            col(9, "protocolDirOwner", Octets(0, 127), Create)
                .or(Default::Text(""))
                .live(),
            col(10, "protocolDirStatus", RowStatus, Create),
        ],
    ),
    // protocolDistControlEntry
    Table::new(
        &[12, 1, 1],
        Rows::Control(Control::Dist),
        &[
            col(2, "protocolDistControlDataSource", Oid, Create),
            col(3, "protocolDistControlDroppedFrames", Counter32, Read),
            col(4, "protocolDistControlCreateTime", TimeTicks, Read),
            col(5, "protocolDistControlOwner", Octets(0, 127), Create)
                .or(Default::Text(""))
                .live(),
            col(6, "protocolDistControlStatus", RowStatus, Create),
        ],
    ),
    // protocolDistStatsEntry
    Table::new(
        &[12, 2, 1],
        Rows::Seen(rows::protocol_dist),
        &[
            col(1, "protocolDistStatsPkts", Gauge32, Read),
            col(2, "protocolDistStatsOctets", Gauge32, Read),
        ],
    ),
    // protocolDistStatsHighCapacityEntry
    Table::new(
        &[12, 3, 1],
        Rows::Seen(rows::protocol_dist_hc),
        &[
            col(
                1,
                "protocolDistStatsHighCapacityOverflowPkts",
                Gauge32,
                Read,
            ),
            col(2, "protocolDistStatsHighCapacityPkts", Counter64, Read),
            col(
                3,
                "protocolDistStatsHighCapacityOverflowOctets",
                Gauge32,
                Read,
            ),
            col(4, "protocolDistStatsHighCapacityOctets", Counter64, Read),
        ],
    ),
    // 13
    Table::new(
        &[13],
        Rows::Scalars(rows::map_scalars),
        &[
            col(1, "addressMapInserts", Counter32, Read),
            col(2, "addressMapDeletes", Counter32, Read),
            col(
                3,
                "addressMapMaxDesiredEntries",
                Integer(-1, i32::MAX),
                Write,
            ),
        ],
    ),
    // addressMapControlEntry
    Table::new(
        &[13, 4, 1],
        Rows::Control(Control::Map),
        &[
            col(2, "addressMapControlDataSource", Oid, Create),
            col(3, "addressMapControlDroppedFrames", Counter32, Read),
            col(4, "addressMapControlOwner", Octets(0, 127), Create)
                .or(Default::Text(""))
                .live(),
            col(5, "addressMapControlStatus", RowStatus, Create),
        ],
    ),
    // addressMapEntry
    Table::new(
        &[13, 5, 1],
        Rows::Seen(rows::address_map),
        &[
            col(4, "addressMapPhysicalAddress", Octets(0, 65535), Read),
            col(5, "addressMapLastChange", TimeTicks, Read),
        ],
    ),
    // hlHostControlEntry
    Table::new(
        &[14, 1, 1],
        Rows::Control(Control::Hosts),
        &[
            col(2, "hlHostControlDataSource", Oid, Create),
            col(3, "hlHostControlNlDroppedFrames", Counter32, Read),
            col(4, "hlHostControlNlInserts", Counter32, Read),
            col(5, "hlHostControlNlDeletes", Counter32, Read),
            col(
                6,
                "hlHostControlNlMaxDesiredEntries",
                Integer(-1, i32::MAX),
                Create,
            )
            .or(Default::Integer(-1)),
            col(7, "hlHostControlAlDroppedFrames", Counter32, Read),
            col(8, "hlHostControlAlInserts", Counter32, Read),
            col(9, "hlHostControlAlDeletes", Counter32, Read),
            col(
                10,
                "hlHostControlAlMaxDesiredEntries",
                Integer(-1, i32::MAX),
                Create,
            )
            .or(Default::Integer(-1)),
            col(11, "hlHostControlOwner", Octets(0, 127), Create)
                .or(Default::Text(""))
                .live(),
            col(12, "hlHostControlStatus", RowStatus, Create),
        ],
    ),
    // nlHostEntry
    Table::new(
        &[14, 2, 1],
        Rows::Seen(rows::nl_host),
        &[
            col(3, "nlHostInPkts", Gauge32, Read),
            col(4, "nlHostOutPkts", Gauge32, Read),
            col(5, "nlHostInOctets", Gauge32, Read),
            col(6, "nlHostOutOctets", Gauge32, Read),
            col(7, "nlHostOutMacNonUnicastPkts", Gauge32, Read),
            col(8, "nlHostCreateTime", TimeTicks, Read),
        ],
    ),
    // nlHostHighCapacityEntry
    Table::new(
        &[14, 3, 1],
        Rows::Seen(rows::nl_host_hc),
        &[
            col(1, "nlHostHighCapacityInOverflowPkts", Gauge32, Read),
            col(2, "nlHostHighCapacityInPkts", Counter64, Read),
            col(3, "nlHostHighCapacityOutOverflowPkts", Gauge32, Read),
            col(4, "nlHostHighCapacityOutPkts", Counter64, Read),
            col(5, "nlHostHighCapacityInOverflowOctets", Gauge32, Read),
            col(6, "nlHostHighCapacityInOctets", Counter64, Read),
            col(7, "nlHostHighCapacityOutOverflowOctets", Gauge32, Read),
            col(8, "nlHostHighCapacityOutOctets", Counter64, Read),
        ],
    ),
    // hlMatrixControlEntry
    Table::new(
        &[15, 1, 1],
        Rows::Control(Control::Matrix),
        &[
            col(2, "hlMatrixControlDataSource", Oid, Create),
            col(3, "hlMatrixControlNlDroppedFrames", Counter32, Read),
            col(4, "hlMatrixControlNlInserts", Counter32, Read),
            col(5, "hlMatrixControlNlDeletes", Counter32, Read),
            col(
                6,
                "hlMatrixControlNlMaxDesiredEntries",
                Integer(-1, i32::MAX),
                Create,
            )
            .or(Default::Integer(-1)),
            col(7, "hlMatrixControlAlDroppedFrames", Counter32, Read),
            col(8, "hlMatrixControlAlInserts", Counter32, Read),
            col(9, "hlMatrixControlAlDeletes", Counter32, Read),
            col(
                10,
                "hlMatrixControlAlMaxDesiredEntries",
                Integer(-1, i32::MAX),
                Create,
            )
            .or(Default::Integer(-1)),
            col(11, "hlMatrixControlOwner", Octets(0, 127), Create)
                .or(Default::Text(""))
                .live(),
            col(12, "hlMatrixControlStatus", RowStatus, Create),
        ],
    ),
    // nlMatrixSDEntry
    Table::new(
        &[15, 2, 1],
        Rows::Seen(rows::nl_matrix_sd),
        &[
            col(4, "nlMatrixSDPkts", Gauge32, Read),
            col(5, "nlMatrixSDOctets", Gauge32, Read),
            col(6, "nlMatrixSDCreateTime", TimeTicks, Read),
        ],
    ),
    // nlMatrixDSEntry
    Table::new(
        &[15, 3, 1],
        Rows::Seen(rows::nl_matrix_ds),
        &[
            col(4, "nlMatrixDSPkts", Gauge32, Read),
            col(5, "nlMatrixDSOctets", Gauge32, Read),
            col(6, "nlMatrixDSCreateTime", TimeTicks, Read),
        ],
    ),
    // nlMatrixSDHighCapacityEntry
    Table::new(
        &[15, 6, 1],
        Rows::Seen(rows::nl_matrix_sd_hc),
        &[
            col(1, "nlMatrixSDHighCapacityOverflowPkts", Gauge32, Read),
            col(2, "nlMatrixSDHighCapacityPkts", Counter64, Read),
            col(3, "nlMatrixSDHighCapacityOverflowOctets", Gauge32, Read),
            col(4, "nlMatrixSDHighCapacityOctets", Counter64, Read),
        ],
    ),
    // nlMatrixDSHighCapacityEntry
    Table::new(
        &[15, 7, 1],
        Rows::Seen(rows::nl_matrix_ds_hc),
        &[
            col(1, "nlMatrixDSHighCapacityOverflowPkts", Gauge32, Read),
            col(2, "nlMatrixDSHighCapacityPkts", Counter64, Read),
            col(3, "nlMatrixDSHighCapacityOverflowOctets", Gauge32, Read),
            col(4, "nlMatrixDSHighCapacityOctets", Counter64, Read),
        ],
    ),
    // alHostEntry
    Table::new(
        &[16, 1, 1],
        Rows::Seen(rows::al_host),
        &[
            col(2, "alHostInPkts", Gauge32, Read),
            col(3, "alHostOutPkts", Gauge32, Read),
            col(4, "alHostInOctets", Gauge32, Read),
            col(5, "alHostOutOctets", Gauge32, Read),
            col(6, "alHostCreateTime", TimeTicks, Read),
        ],
    ),
    // alHostHighCapacityEntry
    Table::new(
        &[16, 2, 1],
        Rows::Seen(rows::al_host_hc),
        &[
            col(1, "alHostHighCapacityInOverflowPkts", Gauge32, Read),
            col(2, "alHostHighCapacityInPkts", Counter64, Read),
            col(3, "alHostHighCapacityOutOverflowPkts", Gauge32, Read),
            col(4, "alHostHighCapacityOutPkts", Counter64, Read),
            col(5, "alHostHighCapacityInOverflowOctets", Gauge32, Read),
            col(6, "alHostHighCapacityInOctets", Counter64, Read),
            col(7, "alHostHighCapacityOutOverflowOctets", Gauge32, Read),
            col(8, "alHostHighCapacityOutOctets", Counter64, Read),
        ],
    ),
    // alMatrixSDEntry
    Table::new(
        &[17, 1, 1],
        Rows::Seen(rows::al_matrix_sd),
        &[
            col(2, "alMatrixSDPkts", Gauge32, Read),
            col(3, "alMatrixSDOctets", Gauge32, Read),
            col(4, "alMatrixSDCreateTime", TimeTicks, Read),
        ],
    ),
    // alMatrixDSEntry
    Table::new(
        &[17, 2, 1],
        Rows::Seen(rows::al_matrix_ds),
        &[
            col(2, "alMatrixDSPkts", Gauge32, Read),
            col(3, "alMatrixDSOctets", Gauge32, Read),
            col(4, "alMatrixDSCreateTime", TimeTicks, Read),
        ],
    ),
    // alMatrixSDHighCapacityEntry
    Table::new(
        &[17, 5, 1],
        Rows::Seen(rows::al_matrix_sd_hc),
        &[
            col(1, "alMatrixSDHighCapacityOverflowPkts", Gauge32, Read),
            col(2, "alMatrixSDHighCapacityPkts", Counter64, Read),
            col(3, "alMatrixSDHighCapacityOverflowOctets", Gauge32, Read),
            col(4, "alMatrixSDHighCapacityOctets", Counter64, Read),
        ],
    ),
    // alMatrixDSHighCapacityEntry
    Table::new(
        &[17, 6, 1],
        Rows::Seen(rows::al_matrix_ds_hc),
        &[
            col(1, "alMatrixDSHighCapacityOverflowPkts", Gauge32, Read),
            col(2, "alMatrixDSHighCapacityPkts", Counter64, Read),
            col(3, "alMatrixDSHighCapacityOverflowOctets", Gauge32, Read),
            col(4, "alMatrixDSHighCapacityOctets", Counter64, Read),
        ],
    ),
    // 19
    Table::new(
        &[19],
        Rows::Scalars(rows::probe_scalars),
        &[
            col(1, "probeCapabilities", Octets(0, 4), Read),
            col(2, "probeSoftwareRev", Octets(0, 15), Read),
            col(3, "probeHardwareRev", Octets(0, 31), Read),
            col(4, "probeDateTime", Octets(0, 11), Write),
            col(5, "probeResetControl", Integer(1, 3), Write),
            col(15, "smonCapabilities", Octets(0, 1), Read),
            col(16, "hcRMONCapabilities", Octets(0, 2), Read),
        ],
    ),
];

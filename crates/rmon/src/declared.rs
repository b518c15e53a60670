//! The tables and scalars of RMON-MIB (RFC 2819), RMON2-MIB (RFC 4502), HC-RMON-MIB (RFC 3273) and SMON-MIB (RFC 2613)
//! that are there, in the order of their identifiers, with the defaults of control rows. Columns that are only parts of
//! indexes are left out.

use crate::control::Control;
use crate::mib::{AUGMENTING, Access, Column, Default, Rows, Syntax, Table};
use crate::{captured, rows, smon, station_rows};

use Access::{Create, Read, Write};
use Syntax::{
    Counter32, Counter64, EntryStatus, Gauge32, Integer, Octets, Oid, RowStatus, TimeTicks,
};

/// The groups, below [`crate::mib::RMON`].
pub(crate) static GROUPS: &[u32] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 22,
];

/// Integer32 without bounds.
const ANY: Syntax = Integer(i32::MIN, i32::MAX);

const fn col(number: u32, name: &'static str, syntax: Syntax, access: Access) -> Column {
    Column::new(number, name, syntax, access)
}

#[rustfmt::skip]
pub(crate) static TABLES: &[Table] = &[
    // etherStatsEntry
    Table::new(&[1, 1, 1], Rows::Control(Control::Ether), &[
        col(1, "etherStatsIndex", Integer(1, 65535), Read),
        col(2, "etherStatsDataSource", Oid, Create),
        col(3, "etherStatsDropEvents", Counter32, Read),
        col(4, "etherStatsOctets", Counter32, Read),
        col(5, "etherStatsPkts", Counter32, Read),
        col(6, "etherStatsBroadcastPkts", Counter32, Read),
        col(7, "etherStatsMulticastPkts", Counter32, Read),
        col(8, "etherStatsCRCAlignErrors", Counter32, Read),
        col(9, "etherStatsUndersizePkts", Counter32, Read),
        col(10, "etherStatsOversizePkts", Counter32, Read),
        col(11, "etherStatsFragments", Counter32, Read),
        col(12, "etherStatsJabbers", Counter32, Read),
        col(13, "etherStatsCollisions", Counter32, Read),
        col(14, "etherStatsPkts64Octets", Counter32, Read),
        col(15, "etherStatsPkts65to127Octets", Counter32, Read),
        col(16, "etherStatsPkts128to255Octets", Counter32, Read),
        col(17, "etherStatsPkts256to511Octets", Counter32, Read),
        col(18, "etherStatsPkts512to1023Octets", Counter32, Read),
        col(19, "etherStatsPkts1024to1518Octets", Counter32, Read),
        col(20, "etherStatsOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(21, "etherStatsStatus", EntryStatus, Create),
    ]),
    // etherStats2Entry
    Table::new(&[1, 4, 1], Rows::Created(Control::Ether), &[
        col(1, "etherStatsDroppedFrames", Counter32, Read),
        col(2, "etherStatsCreateTime", TimeTicks, Read),
    ]),
    // etherStatsHighCapacityEntry
    Table::new(&[1, 7, 1], Rows::Seen(rows::ether_hc), &[
        col(1, "etherStatsHighCapacityOverflowPkts", Counter32, Read),
        col(2, "etherStatsHighCapacityPkts", Counter64, Read),
        col(3, "etherStatsHighCapacityOverflowOctets", Counter32, Read),
        col(4, "etherStatsHighCapacityOctets", Counter64, Read),
        col(5, "etherStatsHighCapacityOverflowPkts64Octets", Counter32, Read),
        col(6, "etherStatsHighCapacityPkts64Octets", Counter64, Read),
        col(7, "etherStatsHighCapacityOverflowPkts65to127Octets", Counter32, Read),
        col(8, "etherStatsHighCapacityPkts65to127Octets", Counter64, Read),
        col(9, "etherStatsHighCapacityOverflowPkts128to255Octets", Counter32, Read),
        col(10, "etherStatsHighCapacityPkts128to255Octets", Counter64, Read),
        col(11, "etherStatsHighCapacityOverflowPkts256to511Octets", Counter32, Read),
        col(12, "etherStatsHighCapacityPkts256to511Octets", Counter64, Read),
        col(13, "etherStatsHighCapacityOverflowPkts512to1023Octets", Counter32, Read),
        col(14, "etherStatsHighCapacityPkts512to1023Octets", Counter64, Read),
        col(15, "etherStatsHighCapacityOverflowPkts1024to1518Octets", Counter32, Read),
        col(16, "etherStatsHighCapacityPkts1024to1518Octets", Counter64, Read),
    ]),
    // historyControlEntry
    Table::new(&[2, 1, 1], Rows::Control(Control::History), &[
        col(1, "historyControlIndex", Integer(1, 65535), Read),
        col(2, "historyControlDataSource", Oid, Create),
        col(3, "historyControlBucketsRequested", Integer(1, 65535), Create).or(Default::Integer(50)).live(),
        col(4, "historyControlBucketsGranted", Integer(1, 65535), Read),
        col(5, "historyControlInterval", Integer(1, 3600), Create).or(Default::Integer(1800)),
        col(6, "historyControlOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(7, "historyControlStatus", EntryStatus, Create),
    ]),
    // etherHistoryEntry
    Table::new(&[2, 2, 1], Rows::Seen(rows::ether_history), &[
        col(1, "etherHistoryIndex", Integer(1, 65535), Read),
        col(2, "etherHistorySampleIndex", Integer(1, i32::MAX), Read),
        col(3, "etherHistoryIntervalStart", TimeTicks, Read),
        col(4, "etherHistoryDropEvents", Counter32, Read),
        col(5, "etherHistoryOctets", Counter32, Read),
        col(6, "etherHistoryPkts", Counter32, Read),
        col(7, "etherHistoryBroadcastPkts", Counter32, Read),
        col(8, "etherHistoryMulticastPkts", Counter32, Read),
        col(9, "etherHistoryCRCAlignErrors", Counter32, Read),
        col(10, "etherHistoryUndersizePkts", Counter32, Read),
        col(11, "etherHistoryOversizePkts", Counter32, Read),
        col(12, "etherHistoryFragments", Counter32, Read),
        col(13, "etherHistoryJabbers", Counter32, Read),
        col(14, "etherHistoryCollisions", Counter32, Read),
        col(15, "etherHistoryUtilization", Integer(0, 10000), Read),
    ]),
    // historyControl2Entry
    Table::new(&[2, 5, 1], Rows::Seen(rows::history_2), &[
        col(1, "historyControlDroppedFrames", Counter32, Read),
    ]),
    // etherHistoryHighCapacityEntry
    Table::new(&[2, 6, 1], Rows::Seen(rows::ether_history_hc), &[
        col(1, "etherHistoryHighCapacityOverflowPkts", Gauge32, Read),
        col(2, "etherHistoryHighCapacityPkts", Counter64, Read),
        col(3, "etherHistoryHighCapacityOverflowOctets", Gauge32, Read),
        col(4, "etherHistoryHighCapacityOctets", Counter64, Read),
    ]),
    // alarmEntry
    Table::new(&[3, 1, 1], Rows::Control(Control::Alarm), &[
        col(1, "alarmIndex", Integer(1, 65535), Read),
        col(2, "alarmInterval", ANY, Create).or(Default::Integer(1)).at_least(1),
        col(3, "alarmVariable", Oid, Create),
        col(4, "alarmSampleType", Integer(1, 2), Create).or(Default::Integer(1)),
        col(5, "alarmValue", ANY, Read),
        col(6, "alarmStartupAlarm", Integer(1, 3), Create).or(Default::Integer(3)),
        col(7, "alarmRisingThreshold", ANY, Create).or(Default::Integer(0)),
        col(8, "alarmFallingThreshold", ANY, Create).or(Default::Integer(0)),
        col(9, "alarmRisingEventIndex", Integer(0, 65535), Create).or(Default::Integer(0)),
        col(10, "alarmFallingEventIndex", Integer(0, 65535), Create).or(Default::Integer(0)),
        col(11, "alarmOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(12, "alarmStatus", EntryStatus, Create),
    ]),
    // hostControlEntry
    Table::new(&[4, 1, 1], Rows::Control(Control::Stations), &[
        col(1, "hostControlIndex", Integer(1, 65535), Read),
        col(2, "hostControlDataSource", Oid, Create),
        col(3, "hostControlTableSize", ANY, Read),
        col(4, "hostControlLastDeleteTime", TimeTicks, Read),
        col(5, "hostControlOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(6, "hostControlStatus", EntryStatus, Create),
    ]),
    // hostEntry
    Table::new(&[4, 2, 1], Rows::Seen(station_rows::host), &[
        col(1, "hostAddress", Octets(0, 65535), Read),
        col(2, "hostCreationOrder", Integer(1, 65535), Read),
        col(3, "hostIndex", Integer(1, 65535), Read),
        col(4, "hostInPkts", Counter32, Read),
        col(5, "hostOutPkts", Counter32, Read),
        col(6, "hostInOctets", Counter32, Read),
        col(7, "hostOutOctets", Counter32, Read),
        col(8, "hostOutErrors", Counter32, Read),
        col(9, "hostOutBroadcastPkts", Counter32, Read),
        col(10, "hostOutMulticastPkts", Counter32, Read),
    ]),
    // hostTimeEntry
    Table::new(&[4, 3, 1], Rows::Seen(station_rows::host_time), &[
        col(1, "hostTimeAddress", Octets(0, 65535), Read),
        col(2, "hostTimeCreationOrder", Integer(1, 65535), Read),
        col(3, "hostTimeIndex", Integer(1, 65535), Read),
        col(4, "hostTimeInPkts", Counter32, Read),
        col(5, "hostTimeOutPkts", Counter32, Read),
        col(6, "hostTimeInOctets", Counter32, Read),
        col(7, "hostTimeOutOctets", Counter32, Read),
        col(8, "hostTimeOutErrors", Counter32, Read),
        col(9, "hostTimeOutBroadcastPkts", Counter32, Read),
        col(10, "hostTimeOutMulticastPkts", Counter32, Read),
    ]),
    // hostControl2Entry
    Table::new(&[4, 4, 1], Rows::Created(Control::Stations), &[
        col(1, "hostControlDroppedFrames", Counter32, Read),
        col(2, "hostControlCreateTime", TimeTicks, Read),
    ]),
    // hostHighCapacityEntry
    Table::new(&[4, 5, 1], Rows::Seen(station_rows::host_hc), &[
        col(1, "hostHighCapacityInOverflowPkts", Counter32, Read),
        col(2, "hostHighCapacityInPkts", Counter64, Read),
        col(3, "hostHighCapacityOutOverflowPkts", Counter32, Read),
        col(4, "hostHighCapacityOutPkts", Counter64, Read),
        col(5, "hostHighCapacityInOverflowOctets", Counter32, Read),
        col(6, "hostHighCapacityInOctets", Counter64, Read),
        col(7, "hostHighCapacityOutOverflowOctets", Counter32, Read),
        col(8, "hostHighCapacityOutOctets", Counter64, Read),
    ]),
    // hostTimeHighCapacityEntry
    Table::new(&[4, 6, 1], Rows::Seen(station_rows::host_time_hc), &[
        col(1, "hostTimeHighCapacityInOverflowPkts", Counter32, Read),
        col(2, "hostTimeHighCapacityInPkts", Counter64, Read),
        col(3, "hostTimeHighCapacityOutOverflowPkts", Counter32, Read),
        col(4, "hostTimeHighCapacityOutPkts", Counter64, Read),
        col(5, "hostTimeHighCapacityInOverflowOctets", Counter32, Read),
        col(6, "hostTimeHighCapacityInOctets", Counter64, Read),
        col(7, "hostTimeHighCapacityOutOverflowOctets", Counter32, Read),
        col(8, "hostTimeHighCapacityOutOctets", Counter64, Read),
    ]),
    // hostTopNControlEntry
    Table::new(&[5, 1, 1], Rows::Control(Control::StationTopN), &[
        col(1, "hostTopNControlIndex", Integer(1, 65535), Read),
        col(2, "hostTopNHostIndex", Integer(1, 65535), Create),
        col(3, "hostTopNRateBase", Integer(1, 7), Create),
        col(4, "hostTopNTimeRemaining", ANY, Create).or(Default::Integer(0)).at_least(0).live(),
        col(5, "hostTopNDuration", ANY, Read),
        col(6, "hostTopNRequestedSize", ANY, Create).or(Default::Integer(10)).at_least(0).live(),
        col(7, "hostTopNGrantedSize", ANY, Read),
        col(8, "hostTopNStartTime", TimeTicks, Read),
        col(9, "hostTopNOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(10, "hostTopNStatus", EntryStatus, Create),
    ]),
    // hostTopNEntry
    Table::new(&[5, 2, 1], Rows::Seen(station_rows::host_top_n), &[
        col(1, "hostTopNReport", Integer(1, 65535), Read),
        col(2, "hostTopNIndex", Integer(1, 65535), Read),
        col(3, "hostTopNAddress", Octets(0, 65535), Read),
        col(4, "hostTopNRate", ANY, Read),
    ]),
    // hostTopNHighCapacityEntry
    Table::new(&[5, 3, 1], Rows::Seen(station_rows::host_top_n_hc), &[
        col(1, "hostTopNHighCapacityAddress", Octets(0, 65535), Read),
        col(2, "hostTopNHighCapacityBaseRate", Gauge32, Read),
        col(3, "hostTopNHighCapacityOverflowRate", Gauge32, Read),
        col(4, "hostTopNHighCapacityRate", Counter64, Read),
    ]),
    // matrixControlEntry
    Table::new(&[6, 1, 1], Rows::Control(Control::StationPairs), &[
        col(1, "matrixControlIndex", Integer(1, 65535), Read),
        col(2, "matrixControlDataSource", Oid, Create),
        col(3, "matrixControlTableSize", ANY, Read),
        col(4, "matrixControlLastDeleteTime", TimeTicks, Read),
        col(5, "matrixControlOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(6, "matrixControlStatus", EntryStatus, Create),
    ]),
    // matrixSDEntry
    Table::new(&[6, 2, 1], Rows::Seen(station_rows::matrix::<0>), &[
        col(1, "matrixSDSourceAddress", Octets(0, 65535), Read),
        col(2, "matrixSDDestAddress", Octets(0, 65535), Read),
        col(3, "matrixSDIndex", Integer(1, 65535), Read),
        col(4, "matrixSDPkts", Counter32, Read),
        col(5, "matrixSDOctets", Counter32, Read),
        col(6, "matrixSDErrors", Counter32, Read),
    ]),
    // matrixDSEntry
    Table::new(&[6, 3, 1], Rows::Seen(station_rows::matrix::<1>), &[
        col(1, "matrixDSSourceAddress", Octets(0, 65535), Read),
        col(2, "matrixDSDestAddress", Octets(0, 65535), Read),
        col(3, "matrixDSIndex", Integer(1, 65535), Read),
        col(4, "matrixDSPkts", Counter32, Read),
        col(5, "matrixDSOctets", Counter32, Read),
        col(6, "matrixDSErrors", Counter32, Read),
    ]),
    // matrixControl2Entry
    Table::new(&[6, 4, 1], Rows::Created(Control::StationPairs), &[
        col(1, "matrixControlDroppedFrames", Counter32, Read),
        col(2, "matrixControlCreateTime", TimeTicks, Read),
    ]),
    // matrixSDHighCapacityEntry
    Table::new(&[6, 5, 1], Rows::Seen(station_rows::matrix_hc::<0>), &[
        col(1, "matrixSDHighCapacityOverflowPkts", Counter32, Read),
        col(2, "matrixSDHighCapacityPkts", Counter64, Read),
        col(3, "matrixSDHighCapacityOverflowOctets", Counter32, Read),
        col(4, "matrixSDHighCapacityOctets", Counter64, Read),
    ]),
    // matrixDSHighCapacityEntry
    Table::new(&[6, 6, 1], Rows::Seen(station_rows::matrix_hc::<1>), &[
        col(1, "matrixDSHighCapacityOverflowPkts", Counter32, Read),
        col(2, "matrixDSHighCapacityPkts", Counter64, Read),
        col(3, "matrixDSHighCapacityOverflowOctets", Counter32, Read),
        col(4, "matrixDSHighCapacityOctets", Counter64, Read),
    ]),
    // filterEntry
    Table::new(&[7, 1, 1], Rows::Control(Control::Filter), &[
        col(1, "filterIndex", Integer(1, 65535), Read),
        col(2, "filterChannelIndex", Integer(1, 65535), Create),
        col(3, "filterPktDataOffset", ANY, Create).or(Default::Integer(0)).at_least(0),
        col(4, "filterPktData", Octets(0, 65535), Create).or(Default::Text("")),
        col(5, "filterPktDataMask", Octets(0, 65535), Create).or(Default::Text("")),
        col(6, "filterPktDataNotMask", Octets(0, 65535), Create).or(Default::Text("")),
        col(7, "filterPktStatus", ANY, Create).or(Default::Integer(0)),
        col(8, "filterPktStatusMask", ANY, Create).or(Default::Integer(0)),
        col(9, "filterPktStatusNotMask", ANY, Create).or(Default::Integer(0)),
        col(10, "filterOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(11, "filterStatus", EntryStatus, Create),
        col(AUGMENTING + 1, "filterProtocolDirDataLocalIndex", Integer(0, i32::MAX), Create).or(Default::Integer(0)),
        col(AUGMENTING + 2, "filterProtocolDirLocalIndex", Integer(0, i32::MAX), Create).or(Default::Integer(0)),
    ]),
    // channelEntry
    Table::new(&[7, 2, 1], Rows::Control(Control::Channel), &[
        col(1, "channelIndex", Integer(1, 65535), Read),
        col(2, "channelIfIndex", Integer(1, 65535), Create),
        col(3, "channelAcceptType", Integer(1, 2), Create).or(Default::Integer(1)),
        col(4, "channelDataControl", Integer(1, 2), Create).or(Default::Integer(2)).live(),
        col(5, "channelTurnOnEventIndex", Integer(0, 65535), Create).or(Default::Integer(0)),
        col(6, "channelTurnOffEventIndex", Integer(0, 65535), Create).or(Default::Integer(0)),
        col(7, "channelEventIndex", Integer(0, 65535), Create).or(Default::Integer(0)),
        col(8, "channelEventStatus", Integer(1, 3), Create).or(Default::Integer(1)).live(),
        col(9, "channelMatches", Counter32, Read),
        col(10, "channelDescription", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(11, "channelOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(12, "channelStatus", EntryStatus, Create),
    ]),
    // channel2Entry
    Table::new(&[7, 3, 1], Rows::Created(Control::Channel), &[
        col(1, "channelDroppedFrames", Counter32, Read),
        col(2, "channelCreateTime", TimeTicks, Read),
    ]),
    // filter2Entry
    Table::new(&[7, 4, 1], Rows::Augments(Control::Filter), &[
        col(1, "filterProtocolDirDataLocalIndex", Integer(0, i32::MAX), Create),
        col(2, "filterProtocolDirLocalIndex", Integer(0, i32::MAX), Create),
    ]),
    // bufferControlEntry
    Table::new(&[8, 1, 1], Rows::Control(Control::Buffer), &[
        col(1, "bufferControlIndex", Integer(1, 65535), Read),
        col(2, "bufferControlChannelIndex", Integer(1, 65535), Create),
        col(3, "bufferControlFullStatus", Integer(1, 2), Read),
        col(4, "bufferControlFullAction", Integer(1, 2), Create).or(Default::Integer(1)).live(),
        col(5, "bufferControlCaptureSliceSize", ANY, Create).or(Default::Integer(100)).at_least(0),
        col(6, "bufferControlDownloadSliceSize", ANY, Create).or(Default::Integer(100)).at_least(0).live(),
        col(7, "bufferControlDownloadOffset", ANY, Create).or(Default::Integer(0)).at_least(0).live(),
        col(8, "bufferControlMaxOctetsRequested", ANY, Create).or(Default::Integer(-1)).at_least(-1).live(),
        col(9, "bufferControlMaxOctetsGranted", ANY, Read),
        col(10, "bufferControlCapturedPackets", ANY, Read),
        col(11, "bufferControlTurnOnTime", TimeTicks, Read),
        col(12, "bufferControlOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(13, "bufferControlStatus", EntryStatus, Create),
    ]),
    // captureBufferEntry
    Table::new(&[8, 2, 1], Rows::Seen(captured::packets), &[
        col(1, "captureBufferControlIndex", Integer(1, 65535), Read),
        col(2, "captureBufferIndex", Integer(1, i32::MAX), Read),
        col(3, "captureBufferPacketID", ANY, Read),
        col(4, "captureBufferPacketData", Octets(0, 65535), Read),
        col(5, "captureBufferPacketLength", ANY, Read),
        col(6, "captureBufferPacketTime", ANY, Read),
        col(7, "captureBufferPacketStatus", ANY, Read),
    ]),
    // captureBufferHighCapacityEntry
    Table::new(&[8, 3, 1], Rows::Seen(captured::packets_hc), &[
        col(1, "captureBufferPacketHighCapacityTime", Integer(0, 999_999), Read),
    ]),
    // eventEntry
    Table::new(&[9, 1, 1], Rows::Control(Control::Event), &[
        col(1, "eventIndex", Integer(1, 65535), Read),
        col(2, "eventDescription", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(3, "eventType", Integer(1, 4), Create).or(Default::Integer(1)).live(),
        col(4, "eventCommunity", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(5, "eventLastTimeSent", TimeTicks, Read),
        col(6, "eventOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(7, "eventStatus", EntryStatus, Create),
    ]),
    // logEntry
    Table::new(&[9, 2, 1], Rows::Seen(rows::log), &[
        col(1, "logEventIndex", Integer(1, 65535), Read),
        col(2, "logIndex", Integer(1, i32::MAX), Read),
        col(3, "logTime", TimeTicks, Read),
        col(4, "logDescription", Octets(0, 255), Read),
    ]),
    // protocolDir
    Table::new(&[11], Rows::Scalars(rows::directory_scalars), &[
        col(1, "protocolDirLastChange", TimeTicks, Read),
    ]),
    // protocolDirEntry
    Table::new(&[11, 2, 1], Rows::Control(Control::Directory), &[
        col(3, "protocolDirLocalIndex", Integer(1, i32::MAX), Read),
        col(4, "protocolDirDescr", Octets(1, 64), Create).or(Default::Text("")).live(),
        col(5, "protocolDirType", Octets(0, 1), Read),
        col(6, "protocolDirAddressMapConfig", Integer(1, 3), Create).or(Default::Integer(0)).live(),
        col(7, "protocolDirHostConfig", Integer(1, 3), Create).or(Default::Integer(0)).live(),
        col(8, "protocolDirMatrixConfig", Integer(1, 3), Create).or(Default::Integer(0)).live(),
        col(9, "protocolDirOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(10, "protocolDirStatus", RowStatus, Create),
    ]),
    // protocolDistControlEntry
    Table::new(&[12, 1, 1], Rows::Control(Control::Dist), &[
        col(2, "protocolDistControlDataSource", Oid, Create),
        col(3, "protocolDistControlDroppedFrames", Counter32, Read),
        col(4, "protocolDistControlCreateTime", TimeTicks, Read),
        col(5, "protocolDistControlOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(6, "protocolDistControlStatus", RowStatus, Create),
    ]),
    // protocolDistStatsEntry
    Table::new(&[12, 2, 1], Rows::Seen(rows::protocol_dist), &[
        col(1, "protocolDistStatsPkts", Gauge32, Read),
        col(2, "protocolDistStatsOctets", Gauge32, Read),
    ]),
    // protocolDistStatsHighCapacityEntry
    Table::new(&[12, 3, 1], Rows::Seen(rows::protocol_dist_hc), &[
        col(1, "protocolDistStatsHighCapacityOverflowPkts", Gauge32, Read),
        col(2, "protocolDistStatsHighCapacityPkts", Counter64, Read),
        col(3, "protocolDistStatsHighCapacityOverflowOctets", Gauge32, Read),
        col(4, "protocolDistStatsHighCapacityOctets", Counter64, Read),
    ]),
    // addressMap
    Table::new(&[13], Rows::Scalars(rows::map_scalars), &[
        col(1, "addressMapInserts", Counter32, Read),
        col(2, "addressMapDeletes", Counter32, Read),
        col(3, "addressMapMaxDesiredEntries", Integer(-1, i32::MAX), Write),
    ]),
    // addressMapControlEntry
    Table::new(&[13, 4, 1], Rows::Control(Control::Map), &[
        col(2, "addressMapControlDataSource", Oid, Create),
        col(3, "addressMapControlDroppedFrames", Counter32, Read),
        col(4, "addressMapControlOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(5, "addressMapControlStatus", RowStatus, Create),
    ]),
    // addressMapEntry
    Table::new(&[13, 5, 1], Rows::Seen(rows::address_map), &[
        col(4, "addressMapPhysicalAddress", Octets(0, 65535), Read),
        col(5, "addressMapLastChange", TimeTicks, Read),
    ]),
    // hlHostControlEntry
    Table::new(&[14, 1, 1], Rows::Control(Control::Hosts), &[
        col(2, "hlHostControlDataSource", Oid, Create),
        col(3, "hlHostControlNlDroppedFrames", Counter32, Read),
        col(4, "hlHostControlNlInserts", Counter32, Read),
        col(5, "hlHostControlNlDeletes", Counter32, Read),
        col(6, "hlHostControlNlMaxDesiredEntries", Integer(-1, i32::MAX), Create).or(Default::Integer(-1)),
        col(7, "hlHostControlAlDroppedFrames", Counter32, Read),
        col(8, "hlHostControlAlInserts", Counter32, Read),
        col(9, "hlHostControlAlDeletes", Counter32, Read),
        col(10, "hlHostControlAlMaxDesiredEntries", Integer(-1, i32::MAX), Create).or(Default::Integer(-1)),
        col(11, "hlHostControlOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(12, "hlHostControlStatus", RowStatus, Create),
    ]),
    // nlHostEntry
    Table::new(&[14, 2, 1], Rows::Seen(rows::nl_host), &[
        col(3, "nlHostInPkts", Gauge32, Read),
        col(4, "nlHostOutPkts", Gauge32, Read),
        col(5, "nlHostInOctets", Gauge32, Read),
        col(6, "nlHostOutOctets", Gauge32, Read),
        col(7, "nlHostOutMacNonUnicastPkts", Gauge32, Read),
        col(8, "nlHostCreateTime", TimeTicks, Read),
    ]),
    // nlHostHighCapacityEntry
    Table::new(&[14, 3, 1], Rows::Seen(rows::nl_host_hc), &[
        col(1, "nlHostHighCapacityInOverflowPkts", Gauge32, Read),
        col(2, "nlHostHighCapacityInPkts", Counter64, Read),
        col(3, "nlHostHighCapacityOutOverflowPkts", Gauge32, Read),
        col(4, "nlHostHighCapacityOutPkts", Counter64, Read),
        col(5, "nlHostHighCapacityInOverflowOctets", Gauge32, Read),
        col(6, "nlHostHighCapacityInOctets", Counter64, Read),
        col(7, "nlHostHighCapacityOutOverflowOctets", Gauge32, Read),
        col(8, "nlHostHighCapacityOutOctets", Counter64, Read),
    ]),
    // hlMatrixControlEntry
    Table::new(&[15, 1, 1], Rows::Control(Control::Matrix), &[
        col(2, "hlMatrixControlDataSource", Oid, Create),
        col(3, "hlMatrixControlNlDroppedFrames", Counter32, Read),
        col(4, "hlMatrixControlNlInserts", Counter32, Read),
        col(5, "hlMatrixControlNlDeletes", Counter32, Read),
        col(6, "hlMatrixControlNlMaxDesiredEntries", Integer(-1, i32::MAX), Create).or(Default::Integer(-1)),
        col(7, "hlMatrixControlAlDroppedFrames", Counter32, Read),
        col(8, "hlMatrixControlAlInserts", Counter32, Read),
        col(9, "hlMatrixControlAlDeletes", Counter32, Read),
        col(10, "hlMatrixControlAlMaxDesiredEntries", Integer(-1, i32::MAX), Create).or(Default::Integer(-1)),
        col(11, "hlMatrixControlOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(12, "hlMatrixControlStatus", RowStatus, Create),
    ]),
    // nlMatrixSDEntry
    Table::new(&[15, 2, 1], Rows::Seen(rows::nl_matrix::<0>), &[
        col(4, "nlMatrixSDPkts", Gauge32, Read),
        col(5, "nlMatrixSDOctets", Gauge32, Read),
        col(6, "nlMatrixSDCreateTime", TimeTicks, Read),
    ]),
    // nlMatrixDSEntry
    Table::new(&[15, 3, 1], Rows::Seen(rows::nl_matrix::<1>), &[
        col(4, "nlMatrixDSPkts", Gauge32, Read),
        col(5, "nlMatrixDSOctets", Gauge32, Read),
        col(6, "nlMatrixDSCreateTime", TimeTicks, Read),
    ]),
    // nlMatrixTopNControlEntry
    Table::new(&[15, 4, 1], Rows::Control(Control::NlTopN), &[
        col(2, "nlMatrixTopNControlMatrixIndex", Integer(1, 65535), Create),
        col(3, "nlMatrixTopNControlRateBase", Integer(1, 4), Create),
        col(4, "nlMatrixTopNControlTimeRemaining", Integer(0, i32::MAX), Create).or(Default::Integer(1800)).live(),
        col(5, "nlMatrixTopNControlGeneratedReports", Counter32, Read),
        col(6, "nlMatrixTopNControlDuration", ANY, Read),
        col(7, "nlMatrixTopNControlRequestedSize", Integer(0, i32::MAX), Create).or(Default::Integer(150)).live(),
        col(8, "nlMatrixTopNControlGrantedSize", Integer(0, i32::MAX), Read),
        col(9, "nlMatrixTopNControlStartTime", TimeTicks, Read),
        col(10, "nlMatrixTopNControlOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(11, "nlMatrixTopNControlStatus", RowStatus, Create),
    ]),
    // nlMatrixTopNEntry
    Table::new(&[15, 5, 1], Rows::Seen(rows::top_n::<false, false>), &[
        col(2, "nlMatrixTopNProtocolDirLocalIndex", Integer(1, i32::MAX), Read),
        col(3, "nlMatrixTopNSourceAddress", Octets(1, 255), Read),
        col(4, "nlMatrixTopNDestAddress", Octets(1, 255), Read),
        col(5, "nlMatrixTopNPktRate", Gauge32, Read),
        col(6, "nlMatrixTopNReversePktRate", Gauge32, Read),
        col(7, "nlMatrixTopNOctetRate", Gauge32, Read),
        col(8, "nlMatrixTopNReverseOctetRate", Gauge32, Read),
    ]),
    // nlMatrixSDHighCapacityEntry
    Table::new(&[15, 6, 1], Rows::Seen(rows::nl_matrix_hc::<0>), &[
        col(1, "nlMatrixSDHighCapacityOverflowPkts", Gauge32, Read),
        col(2, "nlMatrixSDHighCapacityPkts", Counter64, Read),
        col(3, "nlMatrixSDHighCapacityOverflowOctets", Gauge32, Read),
        col(4, "nlMatrixSDHighCapacityOctets", Counter64, Read),
    ]),
    // nlMatrixDSHighCapacityEntry
    Table::new(&[15, 7, 1], Rows::Seen(rows::nl_matrix_hc::<1>), &[
        col(1, "nlMatrixDSHighCapacityOverflowPkts", Gauge32, Read),
        col(2, "nlMatrixDSHighCapacityPkts", Counter64, Read),
        col(3, "nlMatrixDSHighCapacityOverflowOctets", Gauge32, Read),
        col(4, "nlMatrixDSHighCapacityOctets", Counter64, Read),
    ]),
    // nlMatrixTopNHighCapacityEntry
    Table::new(&[15, 8, 1], Rows::Seen(rows::top_n::<false, true>), &[
        col(1, "nlMatrixTopNHighCapacityProtocolDirLocalIndex", Integer(1, i32::MAX), Read),
        col(2, "nlMatrixTopNHighCapacitySourceAddress", Octets(0, 65535), Read),
        col(3, "nlMatrixTopNHighCapacityDestAddress", Octets(0, 65535), Read),
        col(4, "nlMatrixTopNHighCapacityBasePktRate", Gauge32, Read),
        col(5, "nlMatrixTopNHighCapacityOverflowPktRate", Gauge32, Read),
        col(6, "nlMatrixTopNHighCapacityPktRate", Counter64, Read),
        col(7, "nlMatrixTopNHighCapacityReverseBasePktRate", Gauge32, Read),
        col(8, "nlMatrixTopNHighCapacityReverseOverflowPktRate", Gauge32, Read),
        col(9, "nlMatrixTopNHighCapacityReversePktRate", Counter64, Read),
        col(10, "nlMatrixTopNHighCapacityBaseOctetRate", Gauge32, Read),
        col(11, "nlMatrixTopNHighCapacityOverflowOctetRate", Gauge32, Read),
        col(12, "nlMatrixTopNHighCapacityOctetRate", Counter64, Read),
        col(13, "nlMatrixTopNHighCapacityReverseBaseOctetRate", Gauge32, Read),
        col(14, "nlMatrixTopNHighCapacityReverseOverflowOctetRate", Gauge32, Read),
        col(15, "nlMatrixTopNHighCapacityReverseOctetRate", Counter64, Read),
    ]),
    // alHostEntry
    Table::new(&[16, 1, 1], Rows::Seen(rows::al_host), &[
        col(2, "alHostInPkts", Gauge32, Read),
        col(3, "alHostOutPkts", Gauge32, Read),
        col(4, "alHostInOctets", Gauge32, Read),
        col(5, "alHostOutOctets", Gauge32, Read),
        col(6, "alHostCreateTime", TimeTicks, Read),
    ]),
    // alHostHighCapacityEntry
    Table::new(&[16, 2, 1], Rows::Seen(rows::al_host_hc), &[
        col(1, "alHostHighCapacityInOverflowPkts", Gauge32, Read),
        col(2, "alHostHighCapacityInPkts", Counter64, Read),
        col(3, "alHostHighCapacityOutOverflowPkts", Gauge32, Read),
        col(4, "alHostHighCapacityOutPkts", Counter64, Read),
        col(5, "alHostHighCapacityInOverflowOctets", Gauge32, Read),
        col(6, "alHostHighCapacityInOctets", Counter64, Read),
        col(7, "alHostHighCapacityOutOverflowOctets", Gauge32, Read),
        col(8, "alHostHighCapacityOutOctets", Counter64, Read),
    ]),
    // alMatrixSDEntry
    Table::new(&[17, 1, 1], Rows::Seen(rows::al_matrix::<0>), &[
        col(2, "alMatrixSDPkts", Gauge32, Read),
        col(3, "alMatrixSDOctets", Gauge32, Read),
        col(4, "alMatrixSDCreateTime", TimeTicks, Read),
    ]),
    // alMatrixDSEntry
    Table::new(&[17, 2, 1], Rows::Seen(rows::al_matrix::<1>), &[
        col(2, "alMatrixDSPkts", Gauge32, Read),
        col(3, "alMatrixDSOctets", Gauge32, Read),
        col(4, "alMatrixDSCreateTime", TimeTicks, Read),
    ]),
    // alMatrixTopNControlEntry
    Table::new(&[17, 3, 1], Rows::Control(Control::AlTopN), &[
        col(2, "alMatrixTopNControlMatrixIndex", Integer(1, 65535), Create),
        col(3, "alMatrixTopNControlRateBase", Integer(1, 8), Create),
        col(4, "alMatrixTopNControlTimeRemaining", Integer(0, i32::MAX), Create).or(Default::Integer(1800)).live(),
        col(5, "alMatrixTopNControlGeneratedReports", Counter32, Read),
        col(6, "alMatrixTopNControlDuration", ANY, Read),
        col(7, "alMatrixTopNControlRequestedSize", Integer(0, i32::MAX), Create).or(Default::Integer(150)).live(),
        col(8, "alMatrixTopNControlGrantedSize", Integer(0, i32::MAX), Read),
        col(9, "alMatrixTopNControlStartTime", TimeTicks, Read),
        col(10, "alMatrixTopNControlOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(11, "alMatrixTopNControlStatus", RowStatus, Create),
    ]),
    // alMatrixTopNEntry
    Table::new(&[17, 4, 1], Rows::Seen(rows::top_n::<true, false>), &[
        col(2, "alMatrixTopNProtocolDirLocalIndex", Integer(1, i32::MAX), Read),
        col(3, "alMatrixTopNSourceAddress", Octets(1, 255), Read),
        col(4, "alMatrixTopNDestAddress", Octets(1, 255), Read),
        col(5, "alMatrixTopNAppProtocolDirLocalIndex", Integer(1, i32::MAX), Read),
        col(6, "alMatrixTopNPktRate", Gauge32, Read),
        col(7, "alMatrixTopNReversePktRate", Gauge32, Read),
        col(8, "alMatrixTopNOctetRate", Gauge32, Read),
        col(9, "alMatrixTopNReverseOctetRate", Gauge32, Read),
    ]),
    // alMatrixSDHighCapacityEntry
    Table::new(&[17, 5, 1], Rows::Seen(rows::al_matrix_hc::<0>), &[
        col(1, "alMatrixSDHighCapacityOverflowPkts", Gauge32, Read),
        col(2, "alMatrixSDHighCapacityPkts", Counter64, Read),
        col(3, "alMatrixSDHighCapacityOverflowOctets", Gauge32, Read),
        col(4, "alMatrixSDHighCapacityOctets", Counter64, Read),
    ]),
    // alMatrixDSHighCapacityEntry
    Table::new(&[17, 6, 1], Rows::Seen(rows::al_matrix_hc::<1>), &[
        col(1, "alMatrixDSHighCapacityOverflowPkts", Gauge32, Read),
        col(2, "alMatrixDSHighCapacityPkts", Counter64, Read),
        col(3, "alMatrixDSHighCapacityOverflowOctets", Gauge32, Read),
        col(4, "alMatrixDSHighCapacityOctets", Counter64, Read),
    ]),
    // alMatrixTopNHighCapacityEntry
    Table::new(&[17, 7, 1], Rows::Seen(rows::top_n::<true, true>), &[
        col(1, "alMatrixTopNHighCapacityProtocolDirLocalIndex", Integer(1, i32::MAX), Read),
        col(2, "alMatrixTopNHighCapacitySourceAddress", Octets(0, 65535), Read),
        col(3, "alMatrixTopNHighCapacityDestAddress", Octets(0, 65535), Read),
        col(4, "alMatrixTopNHighCapacityAppProtocolDirLocalIndex", ANY, Read),
        col(5, "alMatrixTopNHighCapacityBasePktRate", Gauge32, Read),
        col(6, "alMatrixTopNHighCapacityOverflowPktRate", Gauge32, Read),
        col(7, "alMatrixTopNHighCapacityPktRate", Counter64, Read),
        col(8, "alMatrixTopNHighCapacityReverseBasePktRate", Gauge32, Read),
        col(9, "alMatrixTopNHighCapacityReverseOverflowPktRate", Gauge32, Read),
        col(10, "alMatrixTopNHighCapacityReversePktRate", Counter64, Read),
        col(11, "alMatrixTopNHighCapacityBaseOctetRate", Gauge32, Read),
        col(12, "alMatrixTopNHighCapacityOverflowOctetRate", Gauge32, Read),
        col(13, "alMatrixTopNHighCapacityOctetRate", Counter64, Read),
        col(14, "alMatrixTopNHighCapacityReverseBaseOctetRate", Gauge32, Read),
        col(15, "alMatrixTopNHighCapacityReverseOverflowOctetRate", Gauge32, Read),
        col(16, "alMatrixTopNHighCapacityReverseOctetRate", Counter64, Read),
    ]),
    // usrHistoryControlEntry
    Table::new(&[18, 1, 1], Rows::Control(Control::UserHistory), &[
        col(2, "usrHistoryControlObjects", Integer(1, 65535), Create),
        col(3, "usrHistoryControlBucketsRequested", Integer(1, 65535), Create).or(Default::Integer(50)).live(),
        col(4, "usrHistoryControlBucketsGranted", Integer(1, 65535), Read),
        col(5, "usrHistoryControlInterval", Integer(1, i32::MAX), Create).or(Default::Integer(1800)),
        col(6, "usrHistoryControlOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(7, "usrHistoryControlStatus", RowStatus, Create),
    ]),
    // usrHistoryObjectEntry
    Table::new(&[18, 2, 1], Rows::Control(Control::UserHistoryObject), &[
        col(2, "usrHistoryObjectVariable", Oid, Create).or(Default::NoOid),
        col(3, "usrHistoryObjectSampleType", Integer(1, 2), Create).or(Default::Integer(1)),
    ]),
    // usrHistoryEntry
    Table::new(&[18, 3, 1], Rows::Seen(rows::user_history), &[
        col(2, "usrHistoryIntervalStart", TimeTicks, Read),
        col(3, "usrHistoryIntervalEnd", TimeTicks, Read),
        col(4, "usrHistoryAbsValue", Gauge32, Read),
        col(5, "usrHistoryValStatus", Integer(1, 3), Read),
    ]),
    // usrHistoryHighCapacityEntry
    Table::new(&[18, 4, 1], Rows::Seen(rows::user_history_hc), &[
        col(1, "usrHistoryHighCapacityOverflowAbsValue", Gauge32, Read),
        col(2, "usrHistoryHighCapacityAbsValue", Counter64, Read),
    ]),
    // probeConfig
    Table::new(&[19], Rows::Scalars(rows::probe_scalars), &[
        col(1, "probeCapabilities", Octets(0, 4), Read),
        col(2, "probeSoftwareRev", Octets(0, 15), Read),
        col(3, "probeHardwareRev", Octets(0, 31), Read),
        col(4, "probeDateTime", Octets(0, 11), Write),
        col(5, "probeResetControl", Integer(1, 3), Write),
        col(15, "smonCapabilities", Octets(0, 1), Read),
        col(16, "hcRMONCapabilities", Octets(0, 2), Read),
    ]),
    // dataSourceCapsEntry
    Table::new(&[22, 1, 1, 1, 1], Rows::Seen(smon::sources), &[
        col(2, "dataSourceRmonCaps", Octets(0, 1), Read),
        col(3, "dataSourceCopyCaps", Octets(0, 1), Read),
        col(4, "dataSourceCapsIfIndex", Integer(1, i32::MAX), Read),
    ]),
    // smonVlanStatsControlEntry
    Table::new(&[22, 1, 2, 1, 1], Rows::Control(Control::Vlans), &[
        col(2, "smonVlanStatsControlDataSource", Oid, Create),
        col(3, "smonVlanStatsControlCreateTime", TimeTicks, Read),
        col(4, "smonVlanStatsControlOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(5, "smonVlanStatsControlStatus", RowStatus, Create),
    ]),
    // smonVlanIdStatsEntry
    Table::new(&[22, 1, 2, 2, 1], Rows::Seen(smon::vlans), &[
        col(2, "smonVlanIdStatsTotalPkts", Counter32, Read),
        col(3, "smonVlanIdStatsTotalOverflowPkts", Counter32, Read),
        col(4, "smonVlanIdStatsTotalHCPkts", Counter64, Read),
        col(5, "smonVlanIdStatsTotalOctets", Counter32, Read),
        col(6, "smonVlanIdStatsTotalOverflowOctets", Counter32, Read),
        col(7, "smonVlanIdStatsTotalHCOctets", Counter64, Read),
        col(8, "smonVlanIdStatsNUcastPkts", Counter32, Read),
        col(9, "smonVlanIdStatsNUcastOverflowPkts", Counter32, Read),
        col(10, "smonVlanIdStatsNUcastHCPkts", Counter64, Read),
        col(11, "smonVlanIdStatsNUcastOctets", Counter32, Read),
        col(12, "smonVlanIdStatsNUcastOverflowOctets", Counter32, Read),
        col(13, "smonVlanIdStatsNUcastHCOctets", Counter64, Read),
        col(14, "smonVlanIdStatsCreateTime", TimeTicks, Read),
    ]),
    // smonPrioStatsControlEntry
    Table::new(&[22, 1, 2, 3, 1], Rows::Control(Control::Priorities), &[
        col(2, "smonPrioStatsControlDataSource", Oid, Create),
        col(3, "smonPrioStatsControlCreateTime", TimeTicks, Read),
        col(4, "smonPrioStatsControlOwner", Octets(0, 127), Create).or(Default::Text("")).live(),
        col(5, "smonPrioStatsControlStatus", RowStatus, Create),
    ]),
    // smonPrioStatsEntry
    Table::new(&[22, 1, 2, 4, 1], Rows::Seen(smon::priorities), &[
        col(2, "smonPrioStatsPkts", Counter32, Read),
        col(3, "smonPrioStatsOverflowPkts", Counter32, Read),
        col(4, "smonPrioStatsHCPkts", Counter64, Read),
        col(5, "smonPrioStatsOctets", Counter32, Read),
        col(6, "smonPrioStatsOverflowOctets", Counter32, Read),
        col(7, "smonPrioStatsHCOctets", Counter64, Read),
    ]),
    // portCopyEntry: no interface can be the source or the destination of a copy, so that there are no rows.
    Table::new(&[22, 1, 3, 1, 1], Rows::Seen(|_, _, _, _| None), &[
        col(3, "portCopyDestDropEvents", Counter32, Read),
        col(4, "portCopyDirection", Integer(1, 3), Create),
        col(5, "portCopyStatus", RowStatus, Create),
    ]),
];
